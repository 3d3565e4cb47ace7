"""The status models hold exactly what the contract names, and share one vocabulary with the allocator."""

from pydantic import BaseModel

from adjoin.api import DeviceClaimStatus, DevicePoolStatus
from adjoin.api.claim_status import AllocatedDevice, AllocatedReplica, Allocation, Nomination, Reason
from adjoin.api.pool_status import DeviceCounts
from adjoin.api.schema import structural_schema
from adjoin_allocator.results import Code


def fields(model: type[BaseModel]) -> set[str]:
    return {str(field.alias or name) for name, field in model.model_fields.items()}


def test_claim() -> None:
    assert fields(DeviceClaimStatus) == {
        "observedGeneration",
        "phase",
        "conditions",
        "replicas",
        "readyReplicas",
        "selector",
        "reasons",
        "nearest",
        "nominated",
        "evictions",
        "failures",
        "lastUsedAt",
        "allocation",
    }
    assert fields(Reason) == {"code", "nodes", "message"}
    assert fields(Nomination) == {"index", "node", "devices"}
    assert fields(Allocation) == {"gap", "replicas"}
    assert fields(AllocatedReplica) == {
        "index",
        "node",
        "state",
        "locality",
        "devices",
        "allocatedAt",
        "readyAt",
        "idleSince",
        "lostSince",
        "served",
        "resizedAt",
        "bootID",
        "hooks",
    }
    assert fields(AllocatedDevice) == {"request", "driver", "pool", "device", "id", "share", "consumed"}


def test_pool() -> None:
    assert fields(DeviceCounts) == {
        "capacity",
        "free",
        "allocated",
        "reserved",
        "releasing",
        "unhealthy",
        "missing",
    }
    assert {"observedGeneration", "conditions", "devices", "fragmentation", "tenants", "quarantined"} <= fields(
        DevicePoolStatus
    )


def test_the_schema_knows_the_reason_codes_of_the_allocator() -> None:
    """One vocabulary: what the allocator may say, the API server takes."""
    code = structural_schema(Reason)["properties"]["code"]
    assert set(code["enum"]) == {str(each) for each in Code}
