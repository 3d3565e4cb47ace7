"""The CRDs on a real API server: accepted, with the defaults and refusals that the models and `validate` have too."""

import json
import math
from collections import Counter
from collections.abc import Iterator
from random import Random
from typing import Any

import pytest
from tests.controlplane import ApiFailure
from tests.support import api_cases
from tests.support.api_fuzz import fuzzed
from tests.support.api_objects import Case, Manifest, claim, pool, share, static
from tests.support.crd_server import CRD_PATH, Server, crd_server
from tests.support.odd_numbers import ODD_NUMBERS, WHOLE_NUMBERS
from tests.support.waiting import eventually

from adjoin.api.claim import DeviceClaim
from adjoin.api.crd import DEFINITIONS, schema_version
from adjoin.api.errors import ErrorKind
from adjoin.api.parse import dump, parse_lenient, parse_strict
from adjoin.api.pool import DevicePool
from adjoin.api.share import DeviceShare
from adjoin.api.validate import validate

pytestmark = pytest.mark.cluster

MODELS = {"DeviceClaim": DeviceClaim, "DevicePool": DevicePool, "DeviceShare": DeviceShare}


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with crd_server() as made:
        yield made


def own(value: Manifest) -> Manifest:
    """An object without what the server adds to metadata."""
    kept: Manifest = {key: item for key, item in value.items() if key != "metadata"}
    return kept


# ---------------------------------------------------------------- the definitions


def test_rules_stay_within_the_servers_budget_and_the_schema_is_structural(server: Server) -> None:
    for definition in DEFINITIONS:
        found = server.plane.request("GET", f"{CRD_PATH}/{definition.name}")
        conditions = {each["type"]: each["status"] for each in found["status"]["conditions"]}
        assert conditions["Established"] == "True"
        assert conditions["NamesAccepted"] == "True"
        assert "NonStructuralSchema" not in conditions


def test_e7_the_server_tells_which_schema_it_has(server: Server) -> None:
    for definition in DEFINITIONS:
        found = server.plane.request("GET", f"{CRD_PATH}/{definition.name}")
        assert found["metadata"]["annotations"]["adjoin.dev/schema"] == schema_version(definition)


@pytest.mark.parametrize(
    ("field", "words"),
    [
        pytest.param(
            "dclaim.spec.affinity", ["How near to each other", "scope", "NVLink, PCIeSwitch", "policy"], id="affinity"
        ),
        pytest.param(
            "dclaim.spec.affinity.policy",
            ["ENUM: Required Preferred Match Distinct", "absent: Preferred"],
            id="a policy",
        ),
        pytest.param("dclaim.spec.requests.count", ["Devices per replica. Absent: 1."], id="a count"),
        pytest.param(
            "dpool.spec.topology.matrices", ["nvidia-smi topo -m", "configMapRef <Object> -required-"], id="matrices"
        ),
        pytest.param("dshare.spec.mode", ["ENUM: TimeSliced Fractional MPS", "Immutable."], id="a mode"),
        pytest.param("dclaim.status.allocation", ["Proven distance", "Placed replicas"], id="an allocation"),
    ],
)
def test_kubectl_explain_reads_well(server: Server, field: str, words: list[str]) -> None:
    def explained() -> str:
        run = server.plane.kubectl("explain", field, check=False)
        return " ".join(run.stdout.split()) if run.returncode == 0 else ""

    # The server publishes the schema of a new kind some seconds after it serves it.
    text = eventually(explained, bool, what=f"explanation of {field}")
    for word in words:
        assert word in text


# ---------------------------------------------------------------- what is refused


@pytest.mark.parametrize("case", [pytest.param(case, id=case.id) for case in api_cases.REFUSED])
def test_refused(server: Server, case: Case) -> None:
    said = server.refusal(case.obj)
    if case.server is None:
        assert said is None, "the CRD can tell after all"
        assert validate(case.obj), "nobody can tell"
    else:
        assert said is not None, "accepted"
        assert case.server in said


@pytest.mark.parametrize("case", [pytest.param(case, id=case.id) for case in api_cases.REFUSED_CHANGES])
def test_change_refused(server: Server, case: Case) -> None:
    assert case.old is not None
    made = server.create(server.fresh(case.old))
    with pytest.raises(ApiFailure) as caught:
        server.plane.request("PUT", server.path(made), made | {"spec": case.obj["spec"]})
    assert caught.value.status == 422
    assert str(case.server) in caught.value.body["message"]
    assert case.path in [cause["field"] for cause in caught.value.body["details"]["causes"]]
    assert server.get(made)["spec"] == made["spec"]


@pytest.mark.parametrize("kind", MODELS)
def test_server_and_validate_agree_on_random_objects(server: Server, kind: str) -> None:
    source, objects = Random(f"20261130 {kind}"), 400
    verdicts: Counter[bool] = Counter()
    for _ in range(objects):
        obj = fuzzed(source, kind, source.choice([0.0, 0.01, 0.03]))
        said = server.refusal(obj, "?dryRun=All&fieldValidation=Strict")
        errors = [str(error) for error in validate(obj) if error.kind is not ErrorKind.UNSUPPORTED]
        assert bool(errors) == (said is not None), f"{obj}\nserver: {said}\nvalidate: {errors}"
        verdicts[said is None] += 1
    # The generator reaches both sides.
    assert min(verdicts[True], verdicts[False]) >= objects // 20, verdicts


def _on_the_wire(value: Any) -> bool:
    return not isinstance(value, float) or math.isfinite(value)


ODD = [pytest.param(value, id=repr(value)) for value in ODD_NUMBERS if _on_the_wire(value)]


@pytest.mark.parametrize("value", ODD)
def test_g12_odd_numbers_are_refused(server: Server, value: Any) -> None:
    assert server.refusal(claim(requests=[{"name": "gpu", "count": value}]))
    assert server.refusal(claim(idleTimeout=value))
    assert server.refusal(claim(requests=[{"name": "gpu", "share": {"name": "a", "compute": value}}]))
    if value != 0 or value is False:
        assert server.refusal(claim(replicas=value))
        assert server.refusal(pool(tenancy={"tenants": [{"name": "a", "quota": {"gpu": value}}]}))
    if value not in WHOLE_NUMBERS:
        assert server.refusal(claim(requests=[{"name": "gpu", "share": {"name": "a", "memory": value}}]))
        assert server.refusal(static({"name": "g0", "capacity": {"memory": value}}))


@pytest.mark.parametrize(
    ("obj", "field"),
    [
        pytest.param(claim(affinty=[]), "spec.affinty", id="in a claim"),
        pytest.param(claim(requests=[{"name": "gpu", "gpumem": 1}]), "spec.requests[0].gpumem", id="in a request"),
        pytest.param(claim(poolRef={"name": "a", "namespace": "b"}), "spec.poolRef.namespace", id="in a reference"),
    ],
)
def test_b15_unknown_keys_are_refused_to_whoever_asks_strictly_as_kubectl_does(
    server: Server, obj: Manifest, field: str
) -> None:
    said = server.refusal(obj, "?dryRun=All&fieldValidation=Strict")
    assert said is not None
    assert f'unknown field "{field}"' in said


@pytest.mark.parametrize(
    "status",
    [
        pytest.param({"phase": "Runing"}, id="a phase"),
        pytest.param({"reasons": [{"code": "BadLuck"}]}, id="a reason"),
        pytest.param({"replicas": -1}, id="a count below zero"),
        pytest.param({"allocation": {"replicas": [{"index": 0, "node": "n", "state": "Moving"}]}}, id="a state"),
    ],
)
def test_status_of_unknown_words_is_refused(server: Server, status: Manifest) -> None:
    made = server.create(server.fresh(claim()))
    with pytest.raises(ApiFailure, match="422"):
        server.patch(made, {"status": status}, "status")


# ---------------------------------------------------------------- what is accepted


@pytest.mark.parametrize("obj", [pytest.param(obj, id=sentence) for sentence, obj in api_cases.ACCEPTED.items()])
def test_accepted_with_the_models_defaults(server: Server, obj: Manifest) -> None:
    made = server.create(obj, "?dryRun=All&fieldValidation=Strict")
    model = MODELS[obj["kind"]]
    assert parse_strict(model, made).spec == parse_strict(model, obj).spec
    assert _settled(own(made)) == _settled(own(dump(parse_lenient(model, obj))))
    assert validate(made) == []
    assert validate(made, made) == []


FULL = {
    "a claim with everything": claim(
        poolRef={"name": "training"},
        requests=[
            {
                "name": "gpu",
                "firstOf": [{"name": "whole"}, {"name": "half", "share": {"name": "a", "slots": 1}}],
            },
            {"name": "nic", "count": 8},
        ],
        affinity=[{"requests": ["gpu", "nic"], "scope": "PCIeSwitch"}],
        replicas=4,
        gang={},
        fabric={"required": "block", "segment": {"size": 2, "level": "rack"}},
        host={"cpu": 96, "memory": "1Ti"},
        deadline="2026-12-01T08:00:00Z",
        scaling={},
        idleTimeout="30m",
        lifecycle={"parameters": {"scrub": "full"}},
    ),
    "a pool with everything": pool(
        topology={"fabric": [{"name": "rack", "nodeLabel": "topology.example.com/rack"}]},
        placement={"backfill": {"holdAfter": "10m"}},
        tenancy={
            "tenants": [{"name": "research", "namespaces": ["vision"], "quota": {"gpu": 16, "nic": 0}}],
            "preemption": {"reclaim": "Any"},
            "aging": {"every": "1m"},
        },
        lifecycle={
            "init": [{"name": "verify", "template": {"spec": {"containers": [{"name": "a"}]}}}],
            "cleanup": [{"name": "scrub", "template": {"spec": {}}, "devices": ["gpu"]}],
            "parameters": [{"name": "scrub", "values": ["quick", "full"], "default": "quick"}],
            "nodeUnreachable": {"policy": "Release"},
        },
        health={"rules": [{"taintKey": "gpu.nvidia.com/xid", "values": ["31"], "action": "Event"}]},
        delivery={"networks": {"attachment": "rdma/{device}"}},
    ),
    "a pool that optimises nothing": pool(placement={"optimiseFor": 0}),
    "time slices": share(),
    "fractions": share(mode="Fractional", timeSliced=None, fractional={}),
    "MPS": share(mode="MPS", timeSliced=None, mps={"maxClients": 8, "minReserve": 0}),
    "partitions": share(mode="Partitioned", timeSliced=None, partitioned={"layout": [{"profile": "3g.40gb"}]}),
    "virtual functions": share(mode="VirtualFunctions", timeSliced=None, virtualFunctions={"count": 8}),
}


@pytest.mark.parametrize("obj", [pytest.param(obj, id=sentence) for sentence, obj in FULL.items()])
def test_defaults_of_what_is_not_supported_yet_are_equal_too(server: Server, obj: Manifest) -> None:
    made = server.create(obj, "?dryRun=All&fieldValidation=Strict")
    model = MODELS[obj["kind"]]
    assert parse_strict(model, made).spec == parse_strict(model, obj).spec
    assert _settled(own(made)) == _settled(own(dump(parse_lenient(model, obj))))


def _settled(value: Any) -> Any:
    """Whole numbers and their digits are one quantity; absent and empty say the same."""
    if isinstance(value, dict):
        kept = {key: _settled(item) for key, item in value.items()}
        return {key: item for key, item in kept.items() if item not in ({}, [])}
    if isinstance(value, list):
        return [_settled(item) for item in value]
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else value


@pytest.mark.parametrize(
    ("before", "after"),
    [pytest.param(*pair, id=sentence) for sentence, pair in api_cases.ALLOWED_CHANGES.items()],
)
def test_change_accepted(server: Server, before: Manifest, after: Manifest) -> None:
    made = server.create(server.fresh(before))
    server.plane.request("PUT", server.path(made), made | {"spec": after["spec"]})


def test_null_is_absence(server: Server) -> None:
    obj = claim(requests=[{"name": "gpu", "count": None}]) | {"status": None}
    made = server.create(obj, "?dryRun=All")
    assert made["spec"]["requests"] == [{"name": "gpu"}]
    nulls = claim()
    nulls["spec"] |= {"gang": None, "profile": None, "scaling": None, "affinity": None}
    made = server.create(nulls, "?dryRun=All")
    assert validate(made) == []
    assert made["spec"]["profile"] == "Balanced"
    assert made["spec"]["scaling"] == {"mode": "Fixed"}


# ---------------------------------------------------------------- how it is used


STATUS: Manifest = {
    "observedGeneration": 1,
    "phase": "Ready",
    "conditions": [
        {
            "type": "Ready",
            "status": "True",
            "observedGeneration": 1,
            "lastTransitionTime": "2026-11-30T08:00:00Z",
            "reason": "AllReady",
            "message": "all replicas are ready",
        }
    ],
    "replicas": 1,
    "readyReplicas": 1,
    "selector": "adjoin.dev/claim=job-a",
    "reasons": [{"code": "PodGated", "nodes": 0, "message": "pod a is held by example.com/gate"}],
    "nearest": "fits with scope PCIeRoot instead of PCIeSwitch",
    "nominated": [
        {
            "index": 1,
            "node": "node-b",
            "devices": [{"request": "gpu", "driver": "gpu.nvidia.com", "pool": "node-b", "device": "gpu-0"}],
        }
    ],
    "evictions": [{"byUID": "8f6c", "at": "2026-11-30T08:00:00Z"}],
    "allocation": {
        "gap": 0.25,
        "replicas": [
            {
                "index": 0,
                "node": "node-a",
                "state": "Ready",
                "locality": {"gpu-nic": "PIX"},
                "devices": [
                    {
                        "request": "gpu",
                        "driver": "gpu.nvidia.com",
                        "pool": "node-a",
                        "device": "gpu-0",
                        "id": "GPU-1",
                        "share": {"name": "half", "memory": 2**36, "compute": 500},
                        "consumed": {"gpu-0-counters": {"memory-slice-0": 1}},
                    }
                ],
                "allocatedAt": "2026-11-30T08:00:00Z",
                "readyAt": "2026-11-30T08:00:01Z",
                "idleSince": "2026-11-30T08:00:02Z",
                "bootID": "5b0e",
                "hooks": [{"name": "verify", "phase": "Succeeded", "bootID": "5b0e"}],
            }
        ],
    },
}


def test_the_whole_status_survives_the_server_and_allocation_is_one_value(server: Server) -> None:
    made = server.create(server.fresh(claim()))
    server.patch(made, {"status": STATUS}, "status")
    found = server.get(made)
    assert found["status"] == STATUS
    assert dump(parse_strict(DeviceClaim, found))["status"] == STATUS
    (entry,) = [entry for entry in found["metadata"]["managedFields"] if entry.get("subresource") == "status"]
    owned = entry["fieldsV1"]["f:status"]
    assert owned["f:allocation"] == {}
    assert 'k:{"type":"Ready"}' in owned["f:conditions"]


def test_status_of_pools_and_shares_survives_the_server(server: Server) -> None:
    counts = {"capacity": 8, "free": 5, "allocated": 1, "reserved": 1, "releasing": 0, "unhealthy": 1, "missing": 0}
    device = {"driver": "gpu.nvidia.com", "pool": "n1", "device": "gpu-3", "id": "GPU-3"}
    status: Manifest = {
        "observedGeneration": 1,
        "summary": "gpu 5/8",
        "devices": {"gpu": counts},
        "fragmentation": {"gpu": 0.5},
        "gap": 0.0,
        "tenants": [{"name": "research", "used": {"gpu": 1}, "borrowed": {"gpu": 0}}],
        "quarantined": [device | {"owner": "adjoin", "reason": "NeedsReset", "exit": "reset", "claimUID": "u"}],
    }
    made = server.create(server.fresh(pool()))
    assert server.patch(made, {"status": status}, "status")["status"] == status
    assert dump(parse_strict(DevicePool, server.get(made)))["status"] == status
    placed = {"accepted": True, "isolation": "Hard", "enforcement": "Hardware", "units": 4, "free": 0}
    placed["placements"] = [device | {"partitions": [{"profile": "3g.40gb", "start": 0, "size": 4}]}]
    made = server.create(server.fresh(share()))
    assert server.patch(made, {"status": placed}, "status")["status"] == placed
    assert dump(parse_strict(DeviceShare, server.get(made)))["status"] == placed


def test_writes_to_status_leave_the_spec_and_writes_to_the_spec_leave_the_status(server: Server) -> None:
    made = server.create(server.fresh(claim()) | {"status": {"phase": "Ready"}})
    assert "status" not in made
    done = server.patch(made, {"spec": {"replicas": 7}, "status": {"phase": "Pending"}}, "status")
    assert "replicas" not in done["spec"]
    assert done["metadata"]["generation"] == 1
    done = server.patch(made, {"spec": {"replicas": 7}, "status": {"phase": "Ready"}})
    assert done["status"]["phase"] == "Pending"
    assert done["metadata"]["generation"] == 2


def test_kubectl_shows_what_one_wants_to_know(server: Server) -> None:
    made = server.create(server.fresh(claim("shown", poolRef={"name": "training"})))
    server.patch(made, {"status": STATUS | {"phase": "Pending"}}, "status")
    name = made["metadata"]["name"]
    head, row = server.kubectl("get", "dclaim", name).splitlines()
    assert head.split() == ["NAME", "PHASE", "POOL", "READY", "REPLICAS", "REASON", "AGE"]
    assert row.split()[:-1] == [name, "Pending", "training", "1", "1", "PodGated"]
    head, row = server.kubectl("get", "dclaim", name, "-o", "wide").splitlines()
    assert head.split()[6:8] == ["NODE", "WANTED"]
    assert "node-a" in row.split()
    made = server.create(server.fresh(pool("shown")))
    server.patch(made, {"status": {"summary": "gpu 12/16, nic 30/32"}}, "status")
    head, row = server.kubectl("get", "dpool", made["metadata"]["name"]).splitlines()
    assert head.split() == ["NAME", "READY", "FREE", "AGE"]
    assert "gpu 12/16, nic 30/32" in row
    server.create(server.fresh(share("shown")))
    assert "TimeSliced" in server.kubectl("get", "dshare")
    listed = server.kubectl("get", "adjoin", "-o", "name")
    assert {line.split(".")[0] for line in listed.splitlines()} == {"deviceclaim", "devicepool", "deviceshare"}


def test_claims_are_found_by_pool_and_phase(server: Server) -> None:
    here = server.create(server.fresh(claim("found", poolRef={"name": "rare"})))
    there = server.create(server.fresh(claim("found", poolRef={"name": "other"})))
    server.patch(here, {"status": {"phase": "Failed"}}, "status")
    for selector in ("spec.poolRef.name=rare", "status.phase=Failed"):
        listed = server.kubectl("get", "dclaim", "--field-selector", selector, "-o", "name")
        assert here["metadata"]["name"] in listed
        assert there["metadata"]["name"] not in listed


def test_kubectl_scale(server: Server) -> None:
    made = server.create(server.fresh(claim("scaled", replicas=1)))
    name = made["metadata"]["name"]
    server.patch(made, {"status": {"replicas": 1, "selector": f"adjoin.dev/claim={name}"}}, "status")
    server.kubectl("scale", f"dclaim/{name}", "--replicas=3")
    assert server.get(made)["spec"]["replicas"] == 3
    scale = server.plane.request("GET", server.path(made, subresource="scale"))
    assert scale["spec"] == {"replicas": 3}
    assert scale["status"] == {"replicas": 1, "selector": f"adjoin.dev/claim={name}"}
    server.kubectl("scale", f"dclaim/{name}", "--replicas=0")
    assert server.get(made)["spec"]["replicas"] == 0


def test_kubectl_scale_where_replicas_are_left_out(server: Server) -> None:
    made = server.create(server.fresh(claim("scaled")))
    server.kubectl("scale", f"dclaim/{made['metadata']['name']}", "--replicas=2")
    assert server.get(made)["spec"]["replicas"] == 2


def test_scaling_is_refused_where_a_limit_says_so(server: Server) -> None:
    made = server.create(server.fresh(claim("scaled", gang={"minReplicas": 2}, replicas=4)))
    run = server.plane.kubectl("scale", f"dclaim/{made['metadata']['name']}", "--replicas=1", check=False)
    assert run.returncode != 0
    assert "minReplicas 2 is more than replicas 1" in run.stderr


def test_kubectl_wait_understands_ready(server: Server) -> None:
    made = server.create(server.fresh(claim("waited")))
    server.patch(made, {"status": STATUS}, "status")
    server.kubectl("wait", "--for=condition=Ready", "--timeout=20s", f"dclaim/{made['metadata']['name']}")


def test_e2_applying_the_same_again_changes_nothing(server: Server) -> None:
    for obj in (claim("gitops"), pool("gitops"), share("gitops")):
        wanted = server.fresh(obj)
        first = server.apply(wanted, "gitops")
        again = server.apply(wanted, "gitops")
        assert again["metadata"]["resourceVersion"] == first["metadata"]["resourceVersion"]
        difference = server.plane.kubectl("diff", "--server-side", "-f", "-", stdin=json.dumps(wanted), check=False)
        assert difference.returncode == 0, difference.stdout


def test_server_side_apply_keeps_each_managers_own(server: Server) -> None:
    made = server.apply(server.fresh(claim("shared-by-two", replicas=2)), "gitops")
    server.kubectl("scale", f"dclaim/{made['metadata']['name']}", "--replicas=5")
    without = {key: value for key, value in claim()["spec"].items() if key != "replicas"}
    mine = {key: made[key] for key in ("apiVersion", "kind")} | {"metadata": {"name": made["metadata"]["name"]}}
    with pytest.raises(ApiFailure, match="conflict"):
        server.apply(mine | {"spec": {**without, "replicas": 2}}, "gitops")
    assert server.apply(mine | {"spec": without}, "gitops")["spec"]["replicas"] == 5
    ours = STATUS["conditions"][0] | {"type": "Allocated"}
    server.apply(mine | {"status": {"conditions": [ours]}}, "adjoin", subresource="status")
    done = server.apply(mine | {"status": {"conditions": [ours | {"type": "Audited"}]}}, "other", subresource="status")
    assert [each["type"] for each in done["status"]["conditions"]] == ["Allocated", "Audited"]


def test_a_pool_may_gain_devices_by_another_manager(server: Server) -> None:
    made = server.apply(server.fresh(pool("two-teams")), "platform")
    mine = {key: made[key] for key in ("apiVersion", "kind")} | {"metadata": {"name": made["metadata"]["name"]}}
    more = {"name": "fpga", "type": "Other", "source": {"nodeResource": {"name": "example.com/fpga"}}}
    done = server.apply(mine | {"spec": {"devices": [more]}}, "fpga-team")
    assert [device["name"] for device in done["spec"]["devices"]] == ["gpu", "nic", "fpga"]


def test_kubectl_names_the_field_the_value_and_the_remedy(server: Server) -> None:
    wrong = claim("refused", requests=[{"name": "gpu", "count": 8, "all": True}])
    run = server.plane.kubectl("apply", "-f", "-", stdin=json.dumps(wrong), check=False)
    assert run.returncode == 1
    for word in ("spec.requests[0].count", "count 8", "leave out one of the two"):
        assert word in run.stderr
