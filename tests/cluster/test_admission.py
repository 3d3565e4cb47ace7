"""What is refused at the door, and what never has to pass it."""

from __future__ import annotations

from typing import Any

import pytest
from tests.controlplane.client import JSON_PATCH, MERGE_PATCH, ApiFailure
from tests.support import hardware
from tests.support.api_objects import annotated
from tests.support.installation import Installation
from tests.support.site import Site, condition, devices, pod, reasons
from tests.support.waiting import eventually

pytestmark = pytest.mark.cluster
Manifest = dict[str, Any]


def refusal(site: Site, manifest: Manifest) -> str:
    """The message with which the API server refuses to create an object."""
    with pytest.raises(ApiFailure) as refused:
        site.create(manifest)
    return str(refused.value)


def claim(name: str = "c", **spec: Any) -> Manifest:
    """A DeviceClaim with one GPU and one NIC unless said otherwise."""
    spec.setdefault("requests", [{"name": "gpu"}, {"name": "nic"}])
    return {
        "apiVersion": "adjoin.dev/v1alpha1",
        "kind": "DeviceClaim",
        "metadata": {"name": name},
        "spec": {"poolRef": {"name": "p"}, **spec},
    }


def device_pool(**spec: Any) -> Manifest:
    """A DevicePool of GPUs unless said otherwise."""
    spec.setdefault(
        "devices", [{"name": "gpu", "type": "GPU", "source": {"resourceSlices": {"driver": "gpu.nvidia.com"}}}]
    )
    return {"apiVersion": "adjoin.dev/v1alpha1", "kind": "DevicePool", "metadata": {"name": "refused"}, "spec": spec}


PAIR = ["gpu", "nic"]
ALL = "device.attributes['a'].all({0}, {1})"
EXPENSIVE = ALL.format("k", ALL.format("l", ALL.format("m", ALL.format("n", "k == l && m == n"))))


@pytest.mark.parametrize(
    ("manifest", "words"),
    [
        pytest.param(
            claim(affinity=[{"requests": ["gpu", "nix"], "scope": "PCIeRoot"}]),
            ["affinity", "nix"],
            id="unknown request name in affinity",
        ),
        pytest.param(claim(requests=[{"name": "gpu", "count": 0}]), ["count", "0"], id="count 0"),
        pytest.param(claim(requests=[{"name": "gpu", "count": 2, "all": True}]), ["count", "all"], id="count and all"),
        pytest.param(
            claim(requests=[{"name": "gpu", "selectors": [{"cel": "device.attributs['x'].y"}]}]),
            ["spec.requests[0].selectors[0].cel", "attributs"],
            id="CEL that does not compile",
        ),
        pytest.param(
            claim(requests=[{"name": "gpu", "selectors": [{"cel": EXPENSIVE}]}]),
            ["spec.requests[0].selectors[0].cel", "cost"],
            id="CEL of excessive cost",
        ),
        pytest.param(
            claim(requests=[{"name": "gpu"}, {"name": "gpu"}]), ["requests", "gpu"], id="duplicate request names"
        ),
        pytest.param(claim(replicas=2, gang={"minReplicas": 3}), ["minReplicas", "3"], id="min > replicas"),
        pytest.param(
            device_pool(tenancy={"tenants": [{"name": "t", "namespaces": ["n"], "quota": {"gpu": -1}}]}),
            ["quota", "-1"],
            id="negative quota",
        ),
        pytest.param(
            claim("a-name-that-is-too-long-for-what-is-made-of-it"), ["40"], id="names that make child names too long"
        ),
        pytest.param(
            claim(requests=[{"name": "gpu", "share": {"name": "s", "slots": 1, "profile": "1g.10gb"}}]),
            ["spec.requests[0].share", "slots", "profile"],
            id="parts of two modes",
        ),
        pytest.param(
            annotated(device_pool(), default_pool="yes"),
            ["metadata.annotations[adjoin.dev/default-pool]", "yes", "true"],
            id="an annotation that would do nothing",
        ),
    ],
)
def test_bad_input_is_refused_with_field_value_and_remedy(site: Site, manifest: Manifest, words: list[str]) -> None:
    """By the schema or by the webhook; the message says where and what."""
    message = refusal(site, manifest)
    for word in words:
        assert word in message, message


def test_an_unknown_pool_is_accepted_and_waits(site: Site) -> None:
    """The pool may come later; then the claim is served."""
    site.ask("early", {"gpu": 1})
    eventually(
        lambda: site.claim("early"), lambda seen: list(reasons(seen)) == ["PoolNotFound"], what="reason PoolNotFound"
    )
    site.machines(hardware.two_roots)
    site.pool()
    site.wait_phase("early", "Ready")


def test_an_unparsable_matrix_is_a_condition_of_the_pool_with_its_line(site: Site) -> None:
    """Attributes alone decide there."""
    site.create(
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": site.namespace, "namespace": "adjoin-system"},
            "data": {"topo": "\tGPU0\tGPU1\nGPU0\t X \tNEAR\nGPU1\tNEAR\t X \n"},
        }
    )
    site.machines(hardware.two_roots)
    name = site.pool(topology={"matrices": [{"configMapRef": {"name": site.namespace, "key": "topo"}}]})
    seen = eventually(
        lambda: site.get("DevicePool", name),
        lambda pool: pool is not None and condition(pool, "TopologyMismatch").get("status") == "True",
        what="condition TopologyMismatch",
    )
    assert seen is not None
    assert "line 2" in condition(seen, "TopologyMismatch")["message"]
    assert "NEAR" in condition(seen, "TopologyMismatch")["message"]


def test_what_cannot_change_is_refused_and_what_can_is_not(site: Site) -> None:
    """Immutable: poolRef, requests, affinity; replicas and priority are not."""
    site.create(claim("fixed", affinity=[{"requests": PAIR, "scope": "PCIeRoot"}]))
    for patch, word in (
        ({"poolRef": {"name": "other"}}, "poolRef"),
        ({"requests": [{"name": "gpu", "count": 2}, {"name": "nic"}]}, "requests"),
        ({"affinity": []}, "affinity"),
    ):
        with pytest.raises(ApiFailure) as refused:
            site.patch("DeviceClaim", "fixed", {"spec": patch})
        assert word in str(refused.value)
        assert "immutable" in str(refused.value) or "cannot" in str(refused.value)
    site.patch("DeviceClaim", "fixed", {"spec": {"replicas": 3, "priority": 7}})


def test_status_is_written_by_adjoin_alone(site: Site) -> None:
    """Also not by an administrator, neither by patch nor by server-side apply."""
    site.create(claim("mine"))
    with pytest.raises(ApiFailure) as refused:
        site.patch("DeviceClaim", "mine", {"status": {"phase": "Ready"}}, subresource="status")
    assert refused.value.status == 403
    assert "written by Adjoin alone" in str(refused.value)


def test_keys_of_a_pod_are_adjoins_once_it_exists(site: Site) -> None:
    """Labels, annotations and the gate; a label added later would have missed the webhook."""
    site.create(claim("c"))
    made = site.create(pod("named", "c"))
    assert {"name": "adjoin.dev/claim"} in made["spec"]["schedulingGates"]
    token = made["metadata"]["annotations"]["adjoin.dev/binding"]
    path = site.path("Pod", "named")
    for patch, kind in (
        ({"metadata": {"labels": {"adjoin.dev/claim": "other"}}}, MERGE_PATCH),
        ({"metadata": {"labels": {"adjoin.dev/claim": None}}}, MERGE_PATCH),
        ({"metadata": {"annotations": {"adjoin.dev/binding": "aaaaaaaaaa"}}}, MERGE_PATCH),
        ([{"op": "remove", "path": "/spec/schedulingGates"}], JSON_PATCH),
    ):
        with pytest.raises(ApiFailure) as refused:
            site.plane.request("PATCH", path, patch, content_type=kind)
        assert refused.value.status == 403, str(refused.value)
    with pytest.raises(ApiFailure) as refused:
        site.plane.request(
            "PATCH",
            f"{path}/status",
            {"metadata": {"annotations": {"adjoin.dev/binding": "aaaaaaaaaa"}}},
            content_type=MERGE_PATCH,
        )
    assert refused.value.status == 403
    site.patch("Pod", "named", {"metadata": {"labels": {"team": "vision"}}})
    seen = site.get("Pod", "named")
    assert seen is not None
    assert seen["metadata"]["annotations"]["adjoin.dev/binding"] == token

    plain = pod("plain", "c")
    del plain["metadata"]["labels"]
    site.create(plain)
    with pytest.raises(ApiFailure) as refused:
        site.patch("Pod", "plain", {"metadata": {"labels": {"adjoin.dev/claim": "c"}}})
    assert refused.value.status == 403


def ephemeral(name: str, **fields: Any) -> Manifest:
    """A patch that puts an ephemeral container beside those of the pod."""
    return {"spec": {"ephemeralContainers": [{"name": name, "image": "registry.test/shell:1", **fields}]}}


def debug(site: Site, name: str, patch: Manifest) -> Manifest:
    """What `kubectl debug` sends."""
    path = site.path("Pod", name) + "/ephemeralcontainers"
    seen: Manifest = site.plane.request("PATCH", path, patch, content_type="application/strategic-merge-patch+json")
    return seen


VISIBLE_TO_ALL = {"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}
SILENT = {"name": "NVIDIA_VISIBLE_DEVICES", "value": "void"}


@pytest.mark.parametrize("running", [True, False], ids=["while Adjoin runs", "while it is down"])
def test_g3_an_ephemeral_container_reaches_no_devices(site: Site, adjoin: Installation, running: bool) -> None:
    """It has no resources by Kubernetes' rules; privileges are refused, and the environment is silenced or refused."""
    site.create(claim("c"))
    made = pod("debugged", "c")
    made["spec"]["volumes"] = [{"name": "v", "emptyDir": {}}]
    site.create(made)
    if not running:
        adjoin.operators[-1].kill()
    try:
        for fields in ({}, {"env": [{"name": "A", "value": "b"}, VISIBLE_TO_ALL]}):
            name = f"shell-{len(fields)}"
            if running:
                seen = debug(site, "debugged", ephemeral(name, **fields))
                shell = next(each for each in seen["spec"]["ephemeralContainers"] if each["name"] == name)
                assert [each for each in shell["env"] if each["name"] != "A"] == [SILENT]
                assert len(shell["env"]) == 1 + len(fields)
            else:
                with pytest.raises(ApiFailure) as refused:
                    debug(site, "debugged", ephemeral(name, **fields))
                assert refused.value.status == 403
                assert "NVIDIA_VISIBLE_DEVICES=void" in str(refused.value)
        debug(site, "debugged", ephemeral("silent", env=[SILENT]))
        with pytest.raises(ApiFailure) as refused:
            debug(site, "debugged", ephemeral("root", env=[SILENT], securityContext={"privileged": True}))
        assert refused.value.status == 403
        assert "privileged" in str(refused.value)
        mounts = [{"name": "v", "mountPath": "/var/run/nvidia-container-devices/all"}]
        with pytest.raises(ApiFailure) as refused:
            debug(site, "debugged", ephemeral("namer", env=[SILENT], volumeMounts=mounts))
        assert refused.value.status == 403
        with pytest.raises(ApiFailure) as refused:
            debug(site, "debugged", ephemeral("taker", resources={"claims": [{"name": "adjoin-0"}]}))
        assert refused.value.status in (403, 422)
        # What stands beside a new one is not looked at again.
        seen = debug(site, "debugged", ephemeral("last", env=[SILENT]))
        assert {each["name"] for each in seen["spec"]["ephemeralContainers"]} >= {"silent", "last"}
    finally:
        if not running:
            adjoin.start_operator()


def test_ephemeral_containers_of_other_pods_are_nobodys_business(site: Site) -> None:
    plain = pod("plain", "c")
    del plain["metadata"]["labels"]
    site.create(plain)
    fields: Manifest = {"env": [VISIBLE_TO_ALL], "securityContext": {"privileged": True}}
    seen = debug(site, "plain", ephemeral("shell", **fields))
    (made,) = seen["spec"]["ephemeralContainers"]
    assert {key: made[key] for key in fields} == fields


@pytest.mark.parametrize("sub", ["ephemeralcontainers", "resize", "binding"])
def test_no_subresource_changes_keys_of_a_pod(site: Site, sub: str) -> None:
    """Kubernetes drops them or a policy refuses them; a Binding could set them otherwise."""
    site.machines(hardware.two_roots)
    site.pool()
    site.ask("c", {"gpu": 1})
    made = pod("keyed", "c")
    # Let go, but not bound.
    made["spec"]["schedulerName"] = "nobody"
    made["spec"]["containers"][0]["resources"] = {"requests": {"cpu": "1m"}}
    site.create(made)
    before = eventually(
        lambda: site.get("Pod", "keyed"),
        lambda seen: seen is not None and not seen["spec"].get("schedulingGates"),
        what="the pod's gate is open",
    )
    assert before is not None
    keys = {"labels": {"adjoin.dev/claim": "other"}, "annotations": {"adjoin.dev/binding": "aaaaaaaaaa"}}
    path = site.path("Pod", "keyed") + f"/{sub}"
    if sub == "binding":
        node = devices(site.claim("c"))[0][1]
        body = {"apiVersion": "v1", "kind": "Binding", "target": {"kind": "Node", "name": node}}
        with pytest.raises(ApiFailure) as refused:
            site.plane.request("POST", path, {**body, "metadata": {"name": "keyed", **keys}})
        assert refused.value.status == 403
        site.plane.request("POST", path, {**body, "metadata": {"name": "keyed", "labels": {"a": "b"}}})
    else:
        body = ephemeral("shell") if sub == "ephemeralcontainers" else {}
        site.plane.request(
            "PATCH", path, {**body, "metadata": keys}, content_type="application/strategic-merge-patch+json"
        )
    seen = site.get("Pod", "keyed")
    assert seen is not None
    assert seen["metadata"]["labels"]["adjoin.dev/claim"] == "c"
    assert seen["metadata"]["annotations"] == before["metadata"]["annotations"]


def test_a_token_and_resource_claims_that_the_user_sets_are_replaced(site: Site) -> None:
    """A forged binding would be another pod's devices."""
    site.create(claim("c"))
    made = pod("forged", "c", annotations={"adjoin.dev/binding": "aaaaaaaaaa"})
    made["spec"]["resourceClaims"] = [{"name": "adjoin-0", "resourceClaimName": "adjoin-c-aaaaaaaaaa"}]
    made["spec"]["containers"][0]["resources"] = {"claims": [{"name": "adjoin-0"}]}
    seen = site.create(made)
    token = seen["metadata"]["annotations"]["adjoin.dev/binding"]
    assert token != "aaaaaaaaaa"
    assert [c["resourceClaimName"] for c in seen["spec"]["resourceClaims"]] == [f"adjoin-c-{token}"]


@pytest.mark.parametrize(
    ("manifest", "word"),
    [
        pytest.param(
            {"requests": [{"name": "r", "exactly": {"deviceClassName": "x", "tolerations": [{"operator": "Exists"}]}}]},
            "tolerate",
            id="a toleration without a key",
        ),
        pytest.param(
            {
                "requests": [
                    {
                        "name": "r",
                        "firstAvailable": [
                            {
                                "name": "a",
                                "deviceClassName": "x",
                                "tolerations": [{"key": "adjoin.dev/guard", "operator": "Exists"}],
                            }
                        ],
                    }
                ]
            },
            "tolerate",
            id="one for our key in an alternative",
        ),
        pytest.param(
            {"requests": [{"name": "r", "exactly": {"deviceClassName": "adjoin.dev"}}]}, "DeviceClass", id="our class"
        ),
    ],
)
def test_foreign_resource_claims_cannot_step_over_the_guard(site: Site, manifest: Manifest, word: str) -> None:
    """Neither claims nor templates."""
    for kind, spec in (
        ("ResourceClaim", {"devices": manifest}),
        ("ResourceClaimTemplate", {"spec": {"devices": manifest}}),
    ):
        plural = kind.lower() + "s"
        path = f"/apis/resource.k8s.io/v1/namespaces/{site.namespace}/{plural}"
        body = {"apiVersion": "resource.k8s.io/v1", "kind": kind, "metadata": {"name": "x"}, "spec": spec}
        with pytest.raises(ApiFailure) as refused:
            site.plane.request("POST", path, body)
        assert refused.value.status == 403
        assert word in str(refused.value)


def test_g11_a_stranger_cannot_pass_for_ours(site: Site) -> None:
    """Labels and owners of our group on somebody else's ResourceClaim are refused."""
    made = site.create(claim("c"))
    owner = {"apiVersion": "adjoin.dev/v1alpha1", "kind": "DeviceClaim", "name": "c", "uid": made["metadata"]["uid"]}
    spec = {"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": "x"}}]}}
    for meta in ({"labels": {"adjoin.dev/claim": "c"}}, {"ownerReferences": [owner]}):
        message = refusal(
            site,
            {
                "apiVersion": "resource.k8s.io/v1",
                "kind": "ResourceClaim",
                "metadata": {"name": "stranger", **meta},
                "spec": spec,
            },
        )
        assert "Adjoin's own" in message


def test_whose_devices_a_resource_claim_has_is_written_by_adjoin_alone(site: Site) -> None:
    """Changed later, a mark would hide who has a device, or point at somebody else's pod. What others have of their own
    there stays theirs."""
    site.machines(hardware.two_roots)
    site.pool()
    made = site.ask("pair", {"gpu": 1})
    site.create(pod("pair", "pair"))
    site.wait_running("pair")
    [ours] = site.all("ResourceClaim")
    owner = {"apiVersion": "adjoin.dev/v1alpha1", "kind": "DeviceClaim", "name": "pair", "uid": made["metadata"]["uid"]}
    foreign = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": "stranger", "labels": {"app": "x"}},
        "spec": {"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": "x"}}]}},
    }
    site.create(foreign)
    keys = ("adjoin.dev/pod", "adjoin.dev/replica", "adjoin.dev/claim")
    for name, patches in (
        (ours["metadata"]["name"], [{"ownerReferences": []}, *({"labels": {key: None}} for key in keys)]),
        ("stranger", [{"ownerReferences": [owner]}, *({"labels": {key: "0"}} for key in keys)]),
    ):
        for patch in patches:
            with pytest.raises(ApiFailure) as refused:
                site.patch("ResourceClaim", name, {"metadata": patch})
            assert refused.value.status == 403
            assert "written by Adjoin alone" in str(refused.value)
        site.patch("ResourceClaim", name, {"metadata": {"labels": {"app": "y"}, "finalizers": ["example.org/mine"]}})
        site.patch("ResourceClaim", name, {"metadata": {"finalizers": None}})


def test_g4_while_adjoin_is_down_plain_pods_start_and_claimed_ones_are_refused(
    site: Site, adjoin: Installation
) -> None:
    """Fail open for everybody else, fail closed on devices; running pods run on; deletion always works."""
    site.machines(hardware.two_roots)
    site.pool()
    site.ask("c", {"gpu": 1})
    site.create(pod("before", "c"))
    site.wait_running("before")
    adjoin.operators[-1].kill()
    try:
        plain = pod("plain", "c")
        del plain["metadata"]["labels"]
        site.create(plain)
        site.wait_running("plain")
        with pytest.raises(ApiFailure) as refused:
            site.create(pod("after", "c"))
        assert "webhook" in str(refused.value)
        # Updates of metadata and deletions never ask the webhook.
        site.patch("DeviceClaim", "c", {"metadata": {"labels": {"a": "b"}}})
        site.delete("DeviceClaim", "c")
        assert site.claim("c")["metadata"]["deletionTimestamp"]
        running = site.get("Pod", "before")
        assert running is not None
        assert running["status"]["phase"] == "Running"
    finally:
        adjoin.start_operator()
    site.wait_gone("DeviceClaim", "c")
    site.create(pod("after", "c"))


PLAIN: dict[str, Manifest] = {
    "a bare one": {},
    "labels and annotations of others": {"labels": {"a": "b"}, "annotations": {"c/d": "e"}},
    "owner and finalizer": {"finalizers": ["example.org/x"]},
}


@pytest.mark.parametrize("meta", PLAIN.values(), ids=PLAIN)
@pytest.mark.parametrize("gates", [[], [{"name": "example.org/wait"}]], ids=["ungated", "gate of others"])
def test_ordinary_pods_of_all_shapes_never_meet_an_error_of_the_policies(
    site: Site, meta: Manifest, gates: list[Manifest]
) -> None:
    """Create, update, status update, resourceClaims of others, deletion."""
    made = pod("plain", "c")
    made["metadata"] = {"name": "plain", **meta}
    if gates:
        made["spec"]["schedulingGates"] = gates
    made["spec"]["resourceClaims"] = [
        {"name": "a", "resourceClaimName": "theirs"},
        {"name": "b", "resourceClaimTemplateName": "theirs"},
    ]
    site.create(made)
    site.patch("Pod", "plain", {"metadata": {"labels": {"x": "y"}}})
    site.patch("Pod", "plain", {"status": {"message": "hello"}}, subresource="status")
    site.patch("Pod", "plain", {"spec": {"schedulingGates": []}, "metadata": {"finalizers": None}})
    site.delete("Pod", "plain", gracePeriodSeconds=0)
    site.wait_gone("Pod", "plain")
