"""In which amounts a driver lets a capacity be consumed (KEP-5075): what is asked for, rounded as Kubernetes rounds it.

In comes a `RequestPolicy` and an amount, out comes the amount that is consumed, or None where the policy has none for
it. A device that does not say how its memory may be consumed has no policy, and every amount will do.
"""

from __future__ import annotations

from collections.abc import Mapping

from adjoin_allocator.cel import Quantity
from adjoin_allocator.model import Device, RequestPolicy
from adjoin_allocator.sharing import memory_bytes


def consumed(policy: RequestPolicy | None, amount: int | None, whole: int | None) -> int | None:
    """What is consumed of a capacity when so much is asked for; None where the policy allows nothing for that.

    Nothing asked for is the policy's default, without one all there is. Less than the least of a range is its least;
    what lies between steps, or between values, is the next one up.
    """
    if policy is None:
        return whole if amount is None else amount
    if amount is None:
        return whole if policy.default is None else policy.default
    if policy.values:
        return next((value for value in policy.values if value >= amount), None)
    found = amount
    if policy.least is not None:
        found = max(policy.least, amount)
        if policy.step:
            found = policy.least - (policy.least - found) // policy.step * policy.step
    return None if policy.most is not None and found > policy.most else found


def memory_name(device: Device) -> str | None:
    """The capacity that is a device's memory, as `sharing.memory_bytes` reads it."""
    names = [name for name in sorted(device.capacity) if name.rpartition("/")[2] == "memory"]
    return next((name for name in names if name.startswith(f"{device.driver}/")), names[0] if names else None)


def memory_policy(device: Device) -> RequestPolicy | None:
    """In which amounts a device's memory may be consumed; None where any will do."""
    return device.policies.get(memory_name(device) or "")


def rounded(device: Device, amount: int | None) -> int | None:
    """Bytes of its memory that a part of `amount` bytes (None: not limited) takes of a device.

    Where the device may be in several allocations that is what Kubernetes counts, and None where its driver gives no
    such part. Of others it is the amount as it stands.
    """
    if not device.allow_multiple_allocations:
        return amount
    whole = memory_bytes(device)
    found = consumed(memory_policy(device), amount, whole)
    return None if found is not None and whole is not None and found > whole else found


def consumption(device: Device, memory: int | None) -> Mapping[str, Quantity]:
    """What a part with so much memory (already rounded; None: not limited) consumes, by fully qualified name: of every
    capacity, as Kubernetes counts it.
    """
    name_of_memory = memory_name(device)
    found: dict[str, Quantity] = {}
    for name, amount in sorted(device.capacity.items()):
        policy = device.policies.get(name)
        asked = memory if name == name_of_memory else None
        if asked is None and (policy is None or policy.default is None):
            found[name] = amount
            continue
        each = consumed(policy, asked, None)
        found[name] = amount if each is None else _like(each, amount)
    return found


def _like(amount: int, other: Quantity) -> Quantity:
    """The amount, written with the other's family of suffixes."""
    return Quantity(amount, 0, True, other.notation)
