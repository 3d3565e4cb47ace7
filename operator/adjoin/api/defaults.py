"""What a field means that is absent and has no default of its own in the CRD (`replicas`, `count`, `policy` …).

In come models, out come plain values. Everybody who reads a claim asks here, so that "absent" means one thing.
"""

from typing import Final

from adjoin.api.claim import (
    AffinityLine,
    AffinityOver,
    Alternative,
    DeviceClaimSpec,
    DeviceRequest,
    ScalingMode,
)
from adjoin.api.names import DEVICES_PER_RESOURCE_CLAIM
from adjoin_allocator.terms import Policy

DEFAULT_REPLICAS: Final = 1


def device_of(request: DeviceRequest) -> str:
    """Device name of the pool that the request asks for: absent means the request's own name."""
    return request.device if request.device is not None else request.name


def count_of(request: DeviceRequest | Alternative) -> int | None:
    """Devices per replica, or None for all of the node."""
    if request.all:
        return None
    return 1 if request.count is None else request.count


def replicas_of(spec: DeviceClaimSpec) -> int:
    """Replicas wanted of a claim of fixed size."""
    return DEFAULT_REPLICAS if spec.replicas is None else spec.replicas


def most_replicas(spec: DeviceClaimSpec) -> int:
    """Most replicas that the claim can come to have by itself."""
    if spec.scaling.mode is ScalingMode.FOLLOW_PODS:
        return spec.scaling.max_replicas or 0
    return replicas_of(spec)


def policy_of(line: AffinityLine) -> Policy:
    """A scope without policy is a wish. With an attribute admission requires a policy."""
    return Policy.PREFERRED if line.policy is None else line.policy


def over_of(line: AffinityLine) -> AffinityOver:
    """Among which devices an attribute is compared."""
    return AffinityOver.REPLICA if line.over is None else line.over


def most_devices(request: DeviceRequest) -> int:
    """Most devices that one replica can get for the request, as far as the claim alone tells; `all` counts as a full
    ResourceClaim, beyond which it is refused."""
    choices: tuple[DeviceRequest | Alternative, ...] = request.first_of or (request,)
    return max(DEVICES_PER_RESOURCE_CLAIM if (count := count_of(choice)) is None else count for choice in choices)
