"""What admission makes of pods and of our own kinds, over HTTP as the API server asks it."""

from __future__ import annotations

import asyncio
import base64
import copy
import json
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from aiohttp.test_utils import TestClient, TestServer
from tests.support.clock import until
from tests.support.objects import Obj, deviceclaim, devicepool, deviceshare, node, resourceslice
from tests.support.world import Ending, World

from adjoin.admission import build_app
from adjoin.admission.endpoint import ASK_SECONDS, Endpoint
from adjoin.cache import READERS, Cache
from adjoin.decision import Decider
from adjoin.facts import ClaimFacts, read_claim
from adjoin.intents import Kind

GATE = {"name": "adjoin.dev/claim"}
VOID = {"name": "NVIDIA_VISIBLE_DEVICES", "value": "void"}


def plain_pod(claim: str = "job-a", **spec: Any) -> Obj:
    """A pod as its controller makes it."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"generateName": "train-", "labels": {"adjoin.dev/claim": claim}},
        "spec": {"containers": [{"name": "main", "image": "busybox"}], **spec},
    }


def review(obj: Obj, operation: str = "CREATE", old: Obj | None = None, **fields: Any) -> Obj:
    """An AdmissionReview with this object."""
    request = {
        "uid": "review-1",
        "kind": {"group": "", "version": "v1", "kind": obj["kind"]},
        "operation": operation,
        "namespace": "team",
        "object": obj,
        "oldObject": old,
        "dryRun": False,
        **fields,
    }
    return {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}


def patched(obj: Obj, response: Obj) -> Obj:
    """The object after the response's patch."""
    result = copy.deepcopy(obj)
    for operation in json.loads(base64.b64decode(response["patch"])) if "patch" in response else []:
        assert operation["op"] == "add"
        *parents, last = [part.replace("~1", "/").replace("~0", "~") for part in operation["path"].split("/")[1:]]
        target: Any = result
        for part in parents:
            target = target[int(part) if isinstance(target, list) else part]
        target[int(last) if isinstance(target, list) else last] = operation["value"]
    return result


class Apart:
    """Admission beside a cache, and what it asked the API server for."""

    def __init__(self) -> None:
        self.cache = Cache("adjoin-system")
        self.asked: list[tuple[str, str]] = []
        self.answer: Callable[[], Awaitable[ClaimFacts | None]] | None = None
        self.allowed = False
        self.users: list[Any] = []
        self.client: TestClient[Any, Any]

    async def may(self, user: Any) -> bool:
        self.users.append(user)
        return self.allowed

    def know(self, *objects: Obj) -> None:
        for obj in objects:
            self.cache.ingest({kind.value.kind: kind for kind in Kind}[obj["kind"]], obj)

    def list_everything(self) -> None:
        """Every kind was listed, and there was nothing."""
        for kind in READERS:
            self.cache.prune(kind, (), 1, 0.0)

    async def find(self, namespace: str, name: str) -> ClaimFacts | None:
        self.asked.append((namespace, name))
        return await self.answer() if self.answer is not None else None

    def answer_slowly(self, claim: Obj) -> asyncio.Event:
        """The API server answers with this claim once the event is set."""
        arrived = asyncio.Event()

        async def answer() -> ClaimFacts:
            await arrived.wait()
            return read_claim(claim)

        self.answer = answer
        return arrived

    async def post(self, path: str, obj: Obj, operation: str = "CREATE", old: Obj | None = None, **fields: Any) -> Obj:
        answer = await self.client.post(path, json=review(obj, operation, old, **fields))
        assert answer.status == 200, await answer.text()
        body = await answer.json()
        assert body["response"]["uid"] == "review-1"
        return body["response"]  # type: ignore[no-any-return]

    async def admit(self, pod: Obj) -> Obj:
        """The pod as it is stored."""
        response = await self.post("/mutate-pod", pod)
        assert response["allowed"], response
        return patched(pod, response)

    async def refusal(self, pod: Obj) -> str:
        response = await self.post("/mutate-pod", pod)
        assert not response["allowed"]
        assert response["status"]["code"] == 422
        return str(response["status"]["message"])


@pytest.fixture
async def apart() -> AsyncIterator[Apart]:
    made = Apart()
    async with TestClient(TestServer(build_app(made.cache, made.find, made.may))) as client:
        made.client = client
        yield made


def token(pod: Obj) -> str:
    text = pod["metadata"]["annotations"]["adjoin.dev/binding"]
    assert re.fullmatch(r"[a-z0-9]{10}", text)
    return str(text)


# Pods


async def test_a_pod_gets_gate_token_and_resourceclaim(apart: Apart) -> None:
    apart.know(devicepool(), deviceclaim(requests={"gpu": 1, "nic": 1}))
    pod = await apart.admit(plain_pod())
    assert pod["spec"]["schedulingGates"] == [GATE]
    assert pod["spec"]["resourceClaims"] == [{"name": "adjoin-0", "resourceClaimName": f"adjoin-job-a-{token(pod)}"}]
    assert pod["spec"]["containers"][0]["resources"] == {"claims": [{"name": "adjoin-0"}]}
    assert apart.asked == []


async def test_gates_claims_and_annotations_of_others_stay(apart: Apart) -> None:
    apart.know(devicepool(), deviceclaim())
    pod = plain_pod(
        schedulingGates=[{"name": "kueue.x-k8s.io/topology"}],
        resourceClaims=[{"name": "scratch", "resourceClaimTemplateName": "scratch"}],
    )
    pod["metadata"]["annotations"] = {"other.io/x": "y"}
    pod["spec"]["containers"][0]["resources"] = {"limits": {"cpu": "1"}, "claims": [{"name": "scratch"}]}
    after = await apart.admit(pod)
    assert after["spec"]["schedulingGates"] == [GATE, {"name": "kueue.x-k8s.io/topology"}]
    assert [each["name"] for each in after["spec"]["resourceClaims"]] == ["scratch", "adjoin-0"]
    assert after["spec"]["containers"][0]["resources"] == {
        "limits": {"cpu": "1"},
        "claims": [{"name": "scratch"}, {"name": "adjoin-0"}],
    }
    assert after["metadata"]["annotations"]["other.io/x"] == "y"


async def test_8_gpus_and_32_nics_are_two_entries(apart: Apart) -> None:
    apart.know(devicepool(), deviceclaim(requests={"gpu": 8, "nic": 32}))
    pod = await apart.admit(plain_pod())
    name = f"adjoin-job-a-{token(pod)}"
    assert [each["resourceClaimName"] for each in pod["spec"]["resourceClaims"]] == [name, f"{name}-1"]
    assert pod["spec"]["containers"][0]["resources"]["claims"] == [{"name": "adjoin-0"}, {"name": "adjoin-1"}]


async def test_one_entry_per_driver_where_the_pool_says_so(apart: Apart) -> None:
    apart.know(devicepool(delivery={"split": "Driver"}), deviceclaim(requests={"gpu": 1, "nic": 1}))
    pod = await apart.admit(plain_pod())
    assert len(pod["spec"]["resourceClaims"]) == 2


async def test_a_claim_without_poolref_follows_the_default_pool(apart: Apart) -> None:
    default = devicepool("usual", delivery={"split": "Driver"}, annotations={"adjoin.dev/default-pool": "true"})
    apart.know(devicepool(), default, deviceclaim(pool=None, requests={"gpu": 1, "nic": 1}))
    pod = await apart.admit(plain_pod())
    assert len(pod["spec"]["resourceClaims"]) == 2


async def test_containers_get_what_the_annotation_says(apart: Apart) -> None:
    apart.know(devicepool(), deviceclaim(requests={"gpu": 8, "nic": 32}))
    pod = plain_pod(
        containers=[{"name": name} for name in ("trainer", "loader", "logger")], initContainers=[{"name": "warm"}]
    )
    pod["metadata"]["annotations"] = {
        "adjoin.dev/containers": '{"trainer": ["gpu", "nic"], "loader": ["nic"], "warm": ["gpu"]}'
    }
    after = await apart.admit(pod)
    given = {
        each["name"]: each.get("resources", {}).get("claims", [])
        for each in (*after["spec"]["containers"], *after["spec"]["initContainers"])
    }
    gpu, nic = {"name": "adjoin-0", "request": "gpu"}, {"name": "adjoin-1", "request": "nic"}
    assert given == {"trainer": [gpu, nic], "loader": [nic], "logger": [], "warm": [gpu]}


async def test_a_request_in_two_parts_is_given_from_both(apart: Apart) -> None:
    apart.know(devicepool(), deviceclaim(requests={"gpu": 40}))
    pod = plain_pod()
    pod["metadata"]["annotations"] = {"adjoin.dev/containers": '{"main": ["gpu"]}'}
    after = await apart.admit(pod)
    assert after["spec"]["containers"][0]["resources"]["claims"] == [
        {"name": "adjoin-0", "request": "gpu"},
        {"name": "adjoin-1", "request": "gpu"},
    ]


async def test_what_the_user_put_in_our_places_is_replaced(apart: Apart) -> None:
    """A token that can be chosen could be that of another pod."""
    apart.know(devicepool(), deviceclaim())
    pod = plain_pod(resourceClaims=[{"name": "mine", "resourceClaimName": "adjoin-job-b-victimtoke"}])
    pod["metadata"]["annotations"] = {"adjoin.dev/binding": "victimtoke"}
    pod["spec"]["containers"][0]["resources"] = {"claims": [{"name": "mine"}, {"name": "adjoin-7", "request": "x"}]}
    after = await apart.admit(pod)
    assert token(after) != "victimtoke"
    assert after["spec"]["resourceClaims"] == [
        {"name": "adjoin-0", "resourceClaimName": f"adjoin-job-a-{token(after)}"}
    ]
    claims = after["spec"]["containers"][0]["resources"]["claims"]
    assert {"name": "adjoin-0"} in claims
    assert {"name": "mine"} not in claims


async def test_tokens_are_never_the_same(apart: Apart) -> None:
    apart.know(devicepool(), deviceclaim())
    tokens = {token(await apart.admit(plain_pod())) for _ in range(50)}
    assert len(tokens) == 50


async def test_a_sidecar_that_came_in_later_gets_its_devices_too(apart: Apart) -> None:
    apart.know(devicepool(), deviceclaim(requests={"gpu": 8, "nic": 32}))
    first = await apart.admit(plain_pod())
    first["spec"]["containers"].append({"name": "sidecar", "image": "proxy"})
    second = await apart.admit(first)
    name = f"adjoin-job-a-{token(second)}"
    assert [each["resourceClaimName"] for each in second["spec"]["resourceClaims"]] == [name, f"{name}-1"]
    for container in second["spec"]["containers"]:
        assert container["resources"]["claims"] == [{"name": "adjoin-0"}, {"name": "adjoin-1"}]
        assert container["env"] == [VOID]
    assert second["spec"]["schedulingGates"] == [GATE]


async def test_a_claim_that_memory_does_not_have_is_asked_for_once(apart: Apart) -> None:
    async def found() -> ClaimFacts:
        return read_claim(deviceclaim(requests={"gpu": 40}))

    apart.answer = found
    apart.know(devicepool())
    pod = await apart.admit(plain_pod())
    assert len(pod["spec"]["resourceClaims"]) == 2
    assert apart.asked == [("team", "job-a")]


async def test_d14_pods_of_a_known_claim_ask_the_api_server_nothing(apart: Apart) -> None:
    apart.know(devicepool(), deviceclaim(requests={"gpu": 40}))
    pods = await asyncio.gather(*(apart.admit(plain_pod()) for _ in range(50)))
    assert {len(pod["spec"]["resourceClaims"]) for pod in pods} == {2}
    assert apart.asked == []


async def test_d14_pods_that_come_together_ask_once_for_a_claim_that_is_not_known(apart: Apart) -> None:
    """A Deployment applied before its claim has been seen: hundreds of pods, one request."""
    arrived = apart.answer_slowly(deviceclaim(requests={"gpu": 40}))
    apart.know(devicepool())
    waiting = [asyncio.create_task(apart.admit(plain_pod())) for _ in range(50)]
    other = asyncio.create_task(apart.admit(plain_pod("job-b")))
    await until(lambda: len(apart.asked) == 2)
    arrived.set()
    assert {len(pod["spec"]["resourceClaims"]) for pod in await asyncio.gather(*waiting)} == {2}
    await other
    assert sorted(apart.asked) == [("team", "job-a"), ("team", "job-b")]
    await apart.admit(plain_pod())
    assert len(apart.asked) == 3, "an answer is not remembered here: that is the memory's business"


async def test_d14_one_that_gives_up_waiting_leaves_the_answer_to_the_others(apart: Apart) -> None:
    arrived = apart.answer_slowly(deviceclaim(requests={"gpu": 40}))
    apart.know(devicepool())
    endpoint = Endpoint(apart.cache, apart.find, apart.may)
    first, second = (asyncio.create_task(endpoint.claim("team", "job-a")) for _ in range(2))
    await asyncio.sleep(0)
    first.cancel()
    arrived.set()
    found = await second
    assert found is not None
    assert apart.asked == [("team", "job-a")]


@pytest.mark.parametrize("slow", [False, True], ids=["does not exist", "no answer in time"])
async def test_an_unknown_claim_counts_as_one_resourceclaim(
    apart: Apart, slow: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("adjoin.admission.endpoint.ASK_SECONDS", 0.01)
    assert ASK_SECONDS < 3

    async def never() -> ClaimFacts | None:
        if slow:
            await asyncio.sleep(60)
        return None

    apart.answer = never
    pod = plain_pod()
    pod["metadata"]["annotations"] = {"adjoin.dev/containers": '{"main": ["gpu"]}'}
    response = await apart.post("/mutate-pod", pod)
    assert response["warnings"] == ["there is no DeviceClaim job-a in this namespace yet; the pod waits until there is"]
    after = patched(pod, response)
    assert len(after["spec"]["resourceClaims"]) == 1
    assert after["spec"]["containers"][0]["resources"]["claims"] == [{"name": "adjoin-0", "request": "gpu"}]


async def test_a_claim_of_another_namespace_is_not_looked_at(apart: Apart) -> None:
    apart.know(devicepool(), deviceclaim(namespace="other", requests={"gpu": 40}))
    pod = await apart.admit(plain_pod())
    assert len(pod["spec"]["resourceClaims"]) == 1
    assert apart.asked == [("team", "job-a")]


async def test_a_claim_made_again_under_its_name_is_the_new_one(apart: Apart) -> None:
    apart.know(devicepool(), deviceclaim())
    await apart.admit(plain_pod())
    apart.cache.forget(Kind.DEVICE_CLAIM, "claim-team-job-a", 5, 0.0)
    apart.know(deviceclaim(uid="second", requests={"gpu": 40}))
    assert len((await apart.admit(plain_pod()))["spec"]["resourceClaims"]) == 2


@pytest.mark.parametrize(
    ("change", "message"),
    [
        pytest.param(
            {"metadata": {"labels": {"adjoin.dev/claim": "Job_A"}}},
            'metadata.labels[adjoin.dev/claim]: "Job_A": must be the name of a DeviceClaim',
            id="a label that no claim can have",
        ),
        pytest.param(
            {"metadata": {"labels": {"adjoin.dev/claim": "a" * 41}}}, "at most 40 characters", id="a name too long"
        ),
        pytest.param(
            {"metadata": {"annotations": {"adjoin.dev/containers": "{main"}}},
            'metadata.annotations[adjoin.dev/containers]: "{main": is not JSON',
            id="an annotation that is no JSON",
        ),
        pytest.param(
            {"metadata": {"annotations": {"adjoin.dev/containers": '{"side": ["gpu"]}'}}},
            'metadata.annotations[adjoin.dev/containers]: "side": the pod has no such container (it has main)',
            id="an unknown container",
        ),
        pytest.param(
            {"metadata": {"annotations": {"adjoin.dev/containers": '{"main": ["disk"]}'}}},
            '"disk": the DeviceClaim has no such request (it has gpu)',
            id="an unknown request",
        ),
        pytest.param(
            {"metadata": {"annotations": {"adjoin.dev/replica": "-1"}}},
            'metadata.annotations[adjoin.dev/replica]: "-1": must be the index of a replica',
            id="a negative index",
        ),
        pytest.param(
            {"metadata": {"annotations": {"adjoin.dev/replica": "\u0663"}}},
            "must be the index",
            id="digits of another script",
        ),
    ],
)
async def test_a_pod_that_cannot_be_meant_is_refused_with_field_and_value(
    apart: Apart, change: Obj, message: str
) -> None:
    apart.know(devicepool(), deviceclaim())
    pod = plain_pod()
    for key, value in change["metadata"].items():
        pod["metadata"].setdefault(key, {}).update(value)
    assert message in await apart.refusal(pod)


async def test_all_errors_are_told_at_once(apart: Apart) -> None:
    apart.know(devicepool(), deviceclaim())
    pod = plain_pod(hostPID=True)
    pod["metadata"]["annotations"] = {"adjoin.dev/containers": '{"a": ["x"]}', "adjoin.dev/replica": "one"}
    message = await apart.refusal(pod)
    assert len(message.split("; ")) >= 4


async def test_a_pod_without_the_label_is_let_through_as_it_is(apart: Apart) -> None:
    pod = plain_pod()
    pod["metadata"]["labels"] = {}
    assert await apart.admit(pod) == pod


@pytest.mark.parametrize(
    ("env", "expected", "warned"),
    [
        pytest.param(None, [VOID], False, id="no environment: the image may have one"),
        pytest.param([{"name": "A", "value": "b"}], [{"name": "A", "value": "b"}, VOID], False, id="of other things"),
        pytest.param([{"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}], [VOID], True, id="every card"),
        pytest.param([VOID, {"name": "NVIDIA_VISIBLE_DEVICES", "value": "0"}], [VOID], True, id="twice"),
        pytest.param([VOID], [VOID], False, id="silent already"),
    ],
)
async def test_g3_an_ephemeral_container_sees_no_devices(
    apart: Apart, env: list[Obj] | None, expected: list[Obj], warned: bool
) -> None:
    """Those that were there before cannot change, and nothing else of the pod is touched."""
    old = plain_pod(ephemeralContainers=[{"name": "before", "image": "busybox"}])
    new = copy.deepcopy(old)
    new["spec"]["ephemeralContainers"].insert(0, {"name": "new", "image": "cuda", **({"env": env} if env else {})})
    response = await apart.post("/mutate-pod", new, "UPDATE", old, subResource="ephemeralcontainers")
    after = patched(new, response)
    assert after["spec"]["ephemeralContainers"][0]["env"] == expected
    after["spec"]["ephemeralContainers"] = old["spec"]["ephemeralContainers"]
    assert after == old
    assert bool(response.get("warnings")) is warned
    assert apart.asked == []


async def test_a_dry_run_is_like_any_other(apart: Apart) -> None:
    apart.know(devicepool(), deviceclaim())
    response = await apart.post("/mutate-pod", plain_pod(), dryRun=True)
    assert patched(plain_pod(), response)["spec"]["schedulingGates"] == [GATE]


# Our kinds


@pytest.mark.parametrize(
    "obj", [deviceclaim(finalizers=[]), devicepool(finalizers=["x.io/keep"])], ids=["claim", "pool"]
)
async def test_the_finalizer_is_set_at_creation_beside_others(apart: Apart, obj: Obj) -> None:
    response = await apart.post("/mutate-adjoin", obj)
    after = patched(obj, response)
    assert after["metadata"]["finalizers"] == [*obj["metadata"]["finalizers"], "adjoin.dev/cleanup"]
    assert "patch" not in await apart.post("/mutate-adjoin", after)
    assert "patch" not in await apart.post("/mutate-adjoin", obj, "UPDATE", obj)


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        pytest.param({}, 1, id="nothing said"),
        pytest.param({"scaling": {"mode": "Fixed"}}, 1, id="of fixed size"),
        pytest.param({"replicas": 3}, 3, id="a number"),
        pytest.param({"replicas": 0}, 0, id="none"),
        pytest.param({"scaling": {"mode": "FollowPods", "maxReplicas": 2}}, None, id="its pods decide"),
    ],
)
async def test_a_claim_that_can_be_scaled_says_how_many_replicas_it_has(
    apart: Apart, spec: Obj, expected: int | None
) -> None:
    obj = deviceclaim(finalizers=[])
    obj["spec"] |= spec
    after = patched(obj, await apart.post("/mutate-adjoin", obj))
    assert after["spec"].get("replicas") == expected


async def test_a_finalizer_for_an_object_without_any(apart: Apart) -> None:
    obj = deviceclaim()
    del obj["metadata"]["finalizers"]
    after = patched(obj, await apart.post("/mutate-adjoin", obj))
    assert after["metadata"]["finalizers"] == ["adjoin.dev/cleanup"]


async def test_good_objects_are_allowed(apart: Apart) -> None:
    apart.know(devicepool())
    for obj in (deviceclaim(), devicepool()):
        response = await apart.post("/validate-adjoin", obj)
        assert response["allowed"], response
        assert "warnings" not in response


async def test_every_error_of_an_object_is_in_the_refusal(apart: Apart) -> None:
    claim = deviceclaim(requests={"gpu": 0, "nic": 5000})
    response = await apart.post("/validate-adjoin", claim)
    assert not response["allowed"]
    message = response["status"]["message"]
    assert "spec.requests[0].count" in message
    assert "spec.requests[1].count" in message


async def test_changes_of_what_may_not_change_are_refused(apart: Apart) -> None:
    old, new = deviceclaim(), deviceclaim(requests={"gpu": 2})
    response = await apart.post("/validate-adjoin", new, "UPDATE", old)
    assert not response["allowed"]
    assert "spec.requests" in response["status"]["message"]
    assert (await apart.post("/validate-adjoin", new))["allowed"]


async def test_what_may_surprise_is_a_warning(apart: Apart) -> None:
    static = {"static": {"nodes": [{"name": "n1", "devices": [{"name": "g0"}]}]}}
    pool = devicepool(devices=[{"name": "gpu", "type": "GPU", "source": static}])
    (warning,) = (await apart.post("/validate-adjoin", pool))["warnings"]
    assert warning.startswith("spec.devices[0].source.static: no DRA driver")
    apart.list_everything()
    (warning,) = (await apart.post("/validate-adjoin", deviceclaim()))["warnings"]
    assert warning.startswith("spec.poolRef.name: there is no DevicePool training yet")


# HTTP


@pytest.mark.parametrize("path", ["/", "/mutate", "/mutate-pods", "/mutate-pod/", "/validate", "/healthz/x"])
async def test_unknown_paths_are_not_found(apart: Apart, path: str) -> None:
    assert (await apart.client.post(path, json=review(plain_pod()))).status == 404


@pytest.mark.parametrize("path", ["/mutate-pod", "/mutate-adjoin", "/validate-adjoin"])
@pytest.mark.parametrize(
    "body",
    [
        pytest.param(b"", id="nothing"),
        pytest.param(b"{", id="broken JSON"),
        pytest.param(b"[]", id="a list"),
        pytest.param(b"{}", id="no request"),
        pytest.param(
            json.dumps({**review(plain_pod()), "apiVersion": "admission.k8s.io/v1beta1"}).encode(), id="an old version"
        ),
        pytest.param(json.dumps(review({"kind": "ConfigMap", "metadata": {}})).encode(), id="another kind"),
        pytest.param(
            json.dumps({"apiVersion": "admission.k8s.io/v1", "request": {"uid": "u", "object": None}}).encode(),
            id="no object",
        ),
    ],
)
async def test_bad_requests_are_told_so(apart: Apart, path: str, body: bytes) -> None:
    assert (await apart.client.post(path, data=body)).status == 400


async def test_probes(apart: Apart) -> None:
    assert (await apart.client.get("/healthz")).status == 200
    assert (await apart.client.get("/readyz")).status == 503
    apart.list_everything()
    assert (await apart.client.get("/readyz")).status == 200


async def test_webhook_paths_of_the_chart_are_routes() -> None:
    text = (Path(__file__).parents[3] / "helm/adjoin/templates/webhooks.yaml").read_text()
    paths = set(re.findall(r'"path" "([^"]+)"', text))
    apart = Apart()
    app = build_app(apart.cache, apart.find, apart.may)
    routes = {route.resource.canonical for route in app.router.routes() if route.resource}
    assert paths == {"/mutate-pod", "/mutate-adjoin", "/validate-adjoin"}
    assert paths <= routes


# Hooks


def with_hook(template: Obj, **delivery: Any) -> Obj:
    made = devicepool(spec={"lifecycle": {"init": [{"name": "verify", "template": template}]}})
    made["spec"] |= {"delivery": delivery} if delivery else {}
    return made


def template(container: Obj | None = None, **spec: Any) -> Obj:
    return {"spec": {"containers": [{"name": "main", "image": "busybox", **(container or {})}], **spec}}


@pytest.mark.parametrize(
    ("hook", "place"),
    [
        pytest.param(template(hostPID=True), "spec.hostPID", id="the node's processes"),
        pytest.param(template(hostNetwork=True), "spec.hostNetwork", id="the node's network"),
        pytest.param(
            template(volumes=[{"name": "sys", "hostPath": {"path": "/sys"}}]),
            "spec.volumes[0].hostPath",
            id="its files",
        ),
        pytest.param(
            template(volumes=[{"name": "tls", "secret": {"secretName": "adjoin-webhook-certificates"}}]),
            "spec.volumes[0].secret",
            id="a secret of the operator's namespace",
        ),
        pytest.param(template(serviceAccountName="adjoin"), "spec.serviceAccountName", id="the operator's own rights"),
        pytest.param(
            template({"securityContext": {"privileged": True}}),
            "spec.containers[0].securityContext.privileged",
            id="a privileged container",
        ),
        pytest.param(
            template({"securityContext": {"capabilities": {"add": ["SYS_ADMIN"]}}}),
            "spec.containers[0].securityContext.capabilities.add",
            id="a capability",
        ),
        pytest.param(
            template({"env": [{"name": "KEY", "valueFrom": {"secretKeyRef": {"name": "x", "key": "y"}}}]}),
            "spec.containers[0].env[0].valueFrom.secretKeyRef",
            id="a secret in the environment",
        ),
    ],
)
async def test_a_hook_that_may_do_more_needs_an_owner_who_may_make_such_pods(
    apart: Apart, hook: Obj, place: str
) -> None:
    pool = with_hook(hook)
    user = {"username": "dana", "groups": ["platform"]}
    refused = await apart.post("/validate-adjoin", pool, userInfo=user)
    assert not refused["allowed"]
    assert f"spec.lifecycle.init[0].template.{place}" in refused["status"]["message"]
    assert "dana" in refused["status"]["message"]
    assert apart.users == [user]
    apart.allowed = True
    assert (await apart.post("/validate-adjoin", pool, userInfo=user))["allowed"]
    apart.allowed = False
    changed = {**pool, "spec": {**pool["spec"], "placement": {"strategy": "Pack"}}}
    assert (await apart.post("/validate-adjoin", changed, "UPDATE", pool, userInfo=user))["allowed"]


async def test_a_plain_hook_asks_nobody(apart: Apart) -> None:
    assert (await apart.post("/validate-adjoin", with_hook(template())))["allowed"]
    assert apart.users == []


async def test_who_cannot_be_asked_about_is_refused(apart: Apart) -> None:
    async def fail(user: Any) -> bool:
        raise RuntimeError("503")

    endpoint = Endpoint(apart.cache, apart.find, fail)
    (error,) = await endpoint._escalates(with_hook(template(hostPID=True)), None, {"username": "dana"})
    assert "could not be told: 503" in error


@pytest.mark.parametrize(
    ("hook", "delivery", "words"),
    [
        pytest.param({}, {}, "template.spec", id="no spec"),
        pytest.param({"spec": {"containers": []}}, {}, "at least one container", id="no containers"),
        pytest.param({"metadata": "x", **template()}, {}, "template.metadata", id="metadata that is text"),
        pytest.param(template(volumes="x"), {}, "spec.volumes", id="volumes that are text"),
        pytest.param(template(volumes=[1]), {}, "spec.volumes[0]", id="a volume that is a number"),
        pytest.param(template(securityContext="x"), {}, "spec.securityContext", id="a context that is text"),
        pytest.param(template({"env": {"A": "b"}}), {}, "containers[0].env", id="an environment that is an object"),
        pytest.param(template({"ports": ["http"]}), {}, "containers[0].ports[0]", id="a port that is text"),
        pytest.param(template(initContainers=[1]), {}, "spec.initContainers[0]", id="a container that is a number"),
        pytest.param({"spec": {"containers": [{"name": "main"}]}}, {}, "containers[0].image", id="no image"),
        pytest.param(template(nodeName="n1"), {}, "spec.nodeName", id="a node of its own"),
        pytest.param(template(restartPolicy="Always"), {}, "must be Never", id="restarts"),
        pytest.param(
            template({"env": [{"name": "ADJOIN_PHASE", "value": "init"}]}), {}, "are Adjoin's", id="a variable of ours"
        ),
        pytest.param(
            {"metadata": {"labels": {"adjoin.dev/claim": "x"}}, **template()},
            {},
            "asks for no DeviceClaim",
            id="a claim",
        ),
        pytest.param(
            template(resourceClaims=[{"name": "gpu", "resourceClaimName": "mine"}]),
            {"guard": "None"},
            "without guard",
            id="devices without guard",
        ),
    ],
)
async def test_templates_that_no_hook_can_have(apart: Apart, hook: Obj, delivery: Obj, words: str) -> None:
    refused = await apart.post("/validate-adjoin", with_hook(hook, **delivery))
    assert not refused["allowed"]
    assert words in refused["status"]["message"]


async def test_a_claim_chooses_only_what_its_pool_declares(apart: Apart) -> None:
    parameters = [{"name": "scrub", "values": ["quick", "full"]}]
    pool = devicepool(spec={"lifecycle": {"parameters": parameters}})
    apart.list_everything()
    apart.know({**pool, "metadata": {**pool["metadata"], "resourceVersion": "7"}})

    async def asked(chosen: Obj, old: Obj | None = None) -> Obj:
        claim = deviceclaim()
        claim["spec"]["lifecycle"] = {"parameters": chosen}
        return await apart.post("/validate-adjoin", claim, "CREATE" if old is None else "UPDATE", old)

    assert (await asked({"scrub": "full"}))["allowed"]
    assert "pool training declares quick, full" in (await asked({"scrub": "deep"}))["status"]["message"]
    assert "pool training declares scrub" in (await asked({"depth": "full"}))["status"]["message"]
    before = deviceclaim()
    before["spec"]["lifecycle"] = {"parameters": {"scrub": "deep"}}
    assert (await asked({"scrub": "deep"}, before))["allowed"], "it stood there before the pool said otherwise"


async def test_g8_g10_a_namespace_that_the_pool_does_not_select_is_refused_at_admission(apart: Apart) -> None:
    pool = devicepool(spec={"tenancy": {"namespaceSelector": {"matchLabels": {"gpus": "yes"}}}})
    apart.list_everything()
    apart.know({**pool, "metadata": {**pool["metadata"], "resourceVersion": "7"}})
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team", "uid": "ns", "labels": {}}}
    namespace["metadata"]["resourceVersion"] = "8"
    apart.know(namespace)
    refused = await apart.post("/validate-adjoin", deviceclaim())
    assert "may not claim from it" in refused["status"]["message"]
    claim = deviceclaim()
    assert (await apart.post("/validate-adjoin", claim, "UPDATE", claim))["allowed"]


@pytest.mark.parametrize("annotated", [True, False], ids=["there is a default pool", "there is none"])
async def test_a_claim_that_names_no_pool_is_held_against_the_default_pool(apart: Apart, annotated: bool) -> None:
    tenancy = {"namespaceSelector": {"matchLabels": {"gpus": "yes"}}}
    pool = devicepool(spec={"tenancy": tenancy, "lifecycle": {"parameters": [{"name": "scrub", "values": ["quick"]}]}})
    if annotated:
        pool["metadata"]["annotations"] = {"adjoin.dev/default-pool": "true"}
    apart.list_everything()
    apart.know({**pool, "metadata": {**pool["metadata"], "resourceVersion": "7"}})
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team", "uid": "ns", "labels": {}}}
    namespace["metadata"]["resourceVersion"] = "8"
    apart.know(namespace)
    claim = deviceclaim()
    del claim["spec"]["poolRef"]
    claim["spec"]["lifecycle"] = {"parameters": {"scrub": "deep"}}
    answer = await apart.post("/validate-adjoin", claim)
    assert answer["allowed"] is not annotated
    if annotated:
        assert "pool training declares quick" in answer["status"]["message"]
        assert "spec.poolRef: the default pool is training: namespace team may not" in answer["status"]["message"]


@pytest.mark.parametrize(
    ("requests", "words"),
    [
        pytest.param([{"name": "gpu", "share": {"name": "turns", "slots": 4}}], "", id="all of its slots"),
        pytest.param(
            [{"name": "nic"}, {"name": "gpu", "share": {"name": "turns", "slots": 5}}],
            "spec.requests[1].share: request gpu asks for 5 slots of one device, DeviceShare turns has 4 of each; more "
            "slots are no more devices: several devices are asked for with count",
            id="more than there are",
        ),
        pytest.param(
            [
                {
                    "name": "gpu",
                    "firstOf": [{"name": "one"}, {"name": "two", "share": {"name": "turns", "memory": "1Gi"}}],
                }
            ],
            "spec.requests[0].firstOf[1].share: request gpu asks for memory and compute of DeviceShare turns, whose "
            "mode is TimeSliced; ask for slots instead",
            id="what another mode has",
        ),
        pytest.param([{"name": "gpu", "share": {"name": "unheard", "slots": 5}}], "", id="a share that may yet come"),
    ],
)
async def test_b3_a_new_claim_is_held_against_its_shares(apart: Apart, requests: list[Obj], words: str) -> None:
    apart.list_everything()
    apart.know(deviceshare("turns", mode="TimeSliced", timeSliced={"slots": 4}))
    claim = deviceclaim()
    claim["spec"]["requests"] = requests
    answer = await apart.post("/validate-adjoin", claim)
    assert answer["allowed"] is not bool(words)
    assert words in (answer.get("status") or {}).get("message", "")
    assert (await apart.post("/validate-adjoin", claim, "UPDATE", claim))["allowed"]


async def test_c31_a_hooks_pod_needs_no_claim_and_nobody_gates_it(apart: Apart) -> None:
    """Webhooks see pods that name a claim; no hook's does, and its label lets other systems leave it alone, too."""
    template = {"spec": {"containers": [{"name": "main", "image": "busybox"}]}}
    world = World()
    hooks = {"init": [{"name": "verify", "template": template}]}
    world.add(devicepool(spec={"lifecycle": hooks}), node(), resourceslice(), deviceclaim())
    world.hook = lambda job: Ending(None)
    world.settle(Decider)
    (job,) = world.all(Kind.JOB)
    (made,) = (each for each in world.all(Kind.POD) if each["metadata"]["namespace"] == "adjoin-system")
    assert made["metadata"]["labels"] == {"adjoin.dev/hook": "init"}
    assert made["status"]["phase"] == "Running"
    assert "schedulingGates" not in job["spec"]["template"]["spec"]
    answer = await apart.post("/mutate-pod", made)
    assert answer["allowed"]
    assert "patch" not in answer
    for labels in ({"adjoin.dev/claim": "job-a"}, {"adjoin.dev/claim": ""}):
        asking = {"metadata": {"labels": labels}, **template}
        pool = devicepool(spec={"lifecycle": {"init": [{"name": "verify", "template": asking}]}})
        refused = await apart.post("/validate-adjoin", pool)
        assert "a hook's pod asks for no DeviceClaim" in refused["status"]["message"]
