"""What a DeviceClaim must hold beyond types and limits: the rules of `claim_rules` in Python, one function each.

In comes a parsed claim, out come errors in the order of its fields. Whether the pool, its device names or a share exist
is another object's matter and not looked at.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from adjoin.api.claim import (
    AffinityLine,
    Alternative,
    DeviceClaim,
    DeviceClaimSpec,
    DeviceRequest,
    RequestShare,
    ScalingMode,
)
from adjoin.api.defaults import most_devices, replicas_of
from adjoin.api.errors import ErrorKind, FieldError
from adjoin.api.names import DEVICES_PER_CLAIM, DEVICES_PER_RESOURCE_CLAIM
from adjoin.api.quantity import quantity
from adjoin_allocator.terms import Policy

_SCOPE_POLICIES: Final = (Policy.REQUIRED, Policy.PREFERRED)
_ATTRIBUTE_POLICIES: Final = (Policy.MATCH, Policy.DISTINCT)
_FROZEN: Final = ("poolRef", "affinity", "gang", "fabric")
_FROZEN_OF_REQUEST: Final = ("device", "count", "all", "selectors", "sameDevice", "isolation", "firstOf")
_FROZEN_OF_SHARE: Final = ("name", "slots", "profile")


def check_claim(claim: DeviceClaim) -> Iterator[FieldError]:
    """Everything that is wrong with a claim by itself."""
    spec = claim.spec
    if not spec.requests and spec.host is None:
        yield FieldError(
            "spec.requests",
            None,
            "requests must hold at least one request (it may be empty only if host is given)",
        )
    for index, request in enumerate(spec.requests):
        yield from _check_request(f"spec.requests[{index}]", request)
    yield from _check_affinity(spec)
    yield from _check_size(spec)
    yield from _check_scaling(spec)
    if spec.priority_class_name is not None and spec.priority != 0:
        yield FieldError(
            "spec.priority",
            spec.priority,
            f"priority {spec.priority} beside priorityClassName; leave out one of the two",
        )
    if (fabric := spec.fabric) and not (fabric.required or fabric.preferred or fabric.segment):
        yield FieldError("spec.fabric", {}, "give at least one of required, preferred and segment")
    if (host := spec.host) and host.cpu is None and host.memory is None:
        yield FieldError("spec.host", {}, "give at least one of cpu and memory")


def check_claim_change(new: Mapping[str, Any], old: Mapping[str, Any]) -> Iterator[FieldError]:
    """Everything that changed in a spec and must not. Both are specs without nulls."""
    for field in _FROZEN:
        yield from _frozen(f"spec.{field}", new.get(field), old.get(field), field)
    olds = {request["name"]: request for request in old.get("requests", [])}
    names = {request["name"] for request in new.get("requests", [])}
    if names != olds.keys():
        yield _immutable("spec.requests", sorted(names), "requests")
    for index, request in enumerate(new.get("requests", [])):
        if (before := olds.get(request["name"])) is None:
            continue
        path = f"spec.requests[{index}]"
        for field in _FROZEN_OF_REQUEST:
            yield from _frozen(f"{path}.{field}", request.get(field), before.get(field), field)
        yield from _check_share_change(f"{path}.share", request.get("share"), before.get("share"))


def _check_share_change(path: str, new: Any, old: Any) -> Iterator[FieldError]:
    kept_new = None if new is None else [new.get(field) for field in _FROZEN_OF_SHARE]
    kept_old = None if old is None else [old.get(field) for field in _FROZEN_OF_SHARE]
    if kept_new != kept_old:
        message = "share is immutable but for memory and compute; delete the claim and create it anew"
        yield FieldError(path, new, message, ErrorKind.IMMUTABLE)


def _frozen(path: str, new: Any, old: Any, field: str) -> Iterator[FieldError]:
    # An empty list is as good as none; an empty object is not.
    if (None if new == [] else new) != (None if old == [] else old):
        yield _immutable(path, new, field)


def _immutable(path: str, value: Any, field: str) -> FieldError:
    message = f"{field} is immutable; delete the claim and create it anew"
    if field == "requests":
        message = message.replace("is", "are", 1)
    return FieldError(path, value, message, ErrorKind.IMMUTABLE)


def _check_request(path: str, request: DeviceRequest) -> Iterator[FieldError]:
    yield from _check_count(path, request)
    if not request.first_of:
        return
    beside = (
        request.count,
        request.all,
        request.selectors or None,
        request.share,
        request.same_device,
        request.isolation,
    )
    if any(value is not None for value in beside):
        names = [choice.name for choice in request.first_of]
        message = "beside firstOf a request has only name and device; put the rest into the alternatives"
        yield FieldError(f"{path}.firstOf", names, message)
    names = [alternative.name for alternative in request.first_of]
    if len(set(names)) != len(names):
        yield FieldError(f"{path}.firstOf", names, "names of alternatives must differ")
    for index, alternative in enumerate(request.first_of):
        yield from _check_count(f"{path}.firstOf[{index}]", alternative)


def _check_count(path: str, item: DeviceRequest | Alternative) -> Iterator[FieldError]:
    if item.all and item.count is not None:
        yield FieldError(
            f"{path}.count",
            item.count,
            f"count {item.count} beside all: true, which takes every matching device of the node; leave out one of the "
            "two",
        )
    if item.same_device and item.share is None:
        yield FieldError(
            f"{path}.sameDevice", True, "sameDevice: true needs a share; whole devices are always different ones"
        )
    if item.share is not None:
        yield from _check_share(f"{path}.share", item.share)


def _check_share(path: str, share: RequestShare) -> Iterator[FieldError]:
    amounts = share.memory is not None or share.compute is not None
    if [share.slots is not None, amounts, share.profile is not None].count(True) > 1:
        yield FieldError(
            path,
            share.name,
            "slots (TimeSliced), memory and compute (Fractional, MPS) and profile (Partitioned) exclude each other",
        )
    if share.memory is not None and quantity(share.memory) <= 0:
        yield FieldError(
            f"{path}.memory",
            share.memory,
            f"memory {share.memory} must be greater than 0, such as 8Gi; leave it out for no limit",
        )


def _check_affinity(spec: DeviceClaimSpec) -> Iterator[FieldError]:
    requests = {request.name: request for request in spec.requests}
    for index, line in enumerate(spec.affinity):
        path = f"spec.affinity[{index}]"
        yield from _check_line(path, line)
        for position, name in enumerate(line.requests):
            if name not in requests:
                known = ", ".join(requests) or "none"
                yield FieldError(
                    f"{path}.requests[{position}]", name, f"no request has this name; the claim's requests are {known}"
                )


def _check_line(path: str, line: AffinityLine) -> Iterator[FieldError]:
    if len(set(line.requests)) != len(line.requests):
        yield FieldError(f"{path}.requests", list(line.requests), "a request may stand only once in a line")
    if (line.scope is None) == (line.attribute is None):
        yield FieldError(path, line.scope and [line.scope, line.attribute], "give exactly one of scope and attribute")
        return
    if line.scope is not None:
        if line.policy is not None and line.policy not in _SCOPE_POLICIES:
            message = f"policy {line.policy} does not go with a scope; use Required or Preferred"
            yield FieldError(f"{path}.policy", str(line.policy), message)
        if line.over is not None:
            message = f"over {line.over} is for attributes; leave it out with a scope"
            yield FieldError(f"{path}.over", str(line.over), message)
    elif line.policy is None:
        message = f"attribute {line.attribute} needs a policy: Match or Distinct"
        yield FieldError(f"{path}.policy", None, message)
    elif line.policy not in _ATTRIBUTE_POLICIES:
        message = f"policy {line.policy} does not go with an attribute; use Match or Distinct"
        yield FieldError(f"{path}.policy", str(line.policy), message)


def _check_size(spec: DeviceClaimSpec) -> Iterator[FieldError]:
    replicas = replicas_of(spec)
    if spec.replicas is None and spec.scaling.max_replicas is not None:
        replicas = spec.scaling.max_replicas
    devices = sum(most_devices(request) for request in spec.requests)
    if replicas * devices > DEVICES_PER_CLAIM:
        yield FieldError(
            "spec",
            replicas * devices,
            f"{replicas} replicas of {devices} devices are more than the {DEVICES_PER_CLAIM} devices that a claim may "
            f"have (all: true counts as {DEVICES_PER_RESOURCE_CLAIM}); use several claims",
        )


def _check_scaling(spec: DeviceClaimSpec) -> Iterator[FieldError]:
    scaling, replicas = spec.scaling, replicas_of(spec)
    if scaling.mode is ScalingMode.FOLLOW_PODS:
        if scaling.max_replicas is None:
            yield FieldError("spec.scaling", None, "mode FollowPods needs maxReplicas")
        if spec.replicas is not None or spec.gang is not None:
            message = "with scaling mode FollowPods leave out replicas and gang; the pods decide"
            yield FieldError("spec", spec.replicas, message)
    elif scaling.min_replicas is not None or scaling.max_replicas is not None:
        message = "minReplicas and maxReplicas go with mode FollowPods; with mode Fixed set spec.replicas"
        yield FieldError("spec.scaling", str(scaling.mode), message)
    low, high = scaling.min_replicas, scaling.max_replicas
    if low is not None and high is not None and low > high:
        message = f"minReplicas {low} is more than maxReplicas {high}"
        yield FieldError("spec.scaling.minReplicas", low, message)
    if spec.gang is None:
        return
    least = spec.gang.min_replicas
    if least is not None and least > replicas:
        message = f"minReplicas {least} is more than replicas {replicas}"
        yield FieldError("spec.gang.minReplicas", least, message)
    if replicas < 1:
        message = "a gang needs at least one replica; use suspend: true to hold none"
        yield FieldError("spec.replicas", replicas, message)
