"""Into how many ResourceClaims a pod's devices go, and which request goes into which.

In come a DeviceClaim and its pool, out comes a layout that depends on their specs alone: admission writes that many
entries into the pod, and delivery fills exactly those. Where requests end up never depends on which devices were
chosen.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from adjoin.api import DeviceClaim, DevicePool
from adjoin.api.defaults import count_of, device_of, most_devices
from adjoin.api.names import DEVICES_PER_RESOURCE_CLAIM, DRIVER
from adjoin.api.pool_policy import Split
from adjoin_allocator.amounts import counted

_T = TypeVar("_T")


class LayoutError(Exception):
    """The devices of a replica do not fit into the ResourceClaims that its pod was admitted with."""


@dataclass(frozen=True, slots=True)
class Part:
    """One ResourceClaim: how many devices of which request go into it, in the claim's order. None: all that the request
    got. A request with alternatives (`upto`) may have got fewer than there is room for."""

    requests: tuple[tuple[str, int | None], ...]
    upto: frozenset[str] = frozenset()

    @property
    def names(self) -> tuple[str, ...]:
        """Names of its requests."""
        return tuple(name for name, _ in self.requests)

    @property
    def size(self) -> int:
        """Most devices that it can hold; `all` counts as a full ResourceClaim."""
        return sum(DEVICES_PER_RESOURCE_CLAIM if count is None else count for _, count in self.requests)


Layout = tuple[Part, ...]


def _drivers(pool: DevicePool) -> dict[str, str]:
    """Driver by device name of the pool."""
    return {
        device.name: device.source.resource_slices.driver if device.source.resource_slices else DRIVER
        for device in pool.spec.devices
    }


def _pack(requests: Sequence[tuple[str, int | None]]) -> list[list[tuple[str, int | None]]]:
    """First fit in the claim's order. Only a request beyond 32 devices is split, and then into full ResourceClaims and
    a rest."""
    open_parts: list[list[tuple[str, int | None]]] = []
    room: list[int] = []

    def put(name: str, count: int | None) -> None:
        size = DEVICES_PER_RESOURCE_CLAIM if count is None else count
        place = next((i for i, free in enumerate(room) if size <= free), len(room))
        if place == len(room):
            open_parts.append([])
            room.append(DEVICES_PER_RESOURCE_CLAIM)
        open_parts[place].append((name, count))
        room[place] -= size

    for name, count in requests:
        if count is None:
            put(name, None)
            continue
        while count > DEVICES_PER_RESOURCE_CLAIM:
            put(name, DEVICES_PER_RESOURCE_CLAIM)
            count -= DEVICES_PER_RESOURCE_CLAIM
        if count:
            put(name, count)
    return open_parts


def parts(claim: DeviceClaim | None, pool: DevicePool | None) -> Layout:
    """The layout of one replica: at most 32 devices a part, one request in one part where that is possible.

    An unknown claim, or one without requests, is one part. An unknown pool has one driver. With `delivery.split:
    Driver` no part holds devices of two drivers.
    """
    if claim is None or not claim.spec.requests:
        return (Part(()),)
    by_driver: dict[str, list[tuple[str, int | None]]] = {}
    drivers = _drivers(pool) if pool is not None and pool.spec.delivery.split is Split.DRIVER else {}
    for request in claim.spec.requests:
        count = most_devices(request) if request.first_of else count_of(request)
        by_driver.setdefault(drivers.get(device_of(request), ""), []).append((request.name, count))
    upto = frozenset(request.name for request in claim.spec.requests if request.first_of)
    return tuple(Part(tuple(part), upto) for group in by_driver.values() for part in _pack(group))


def deal(layout: Layout, devices: Mapping[str, Sequence[_T]]) -> tuple[tuple[tuple[str, tuple[_T, ...]], ...], ...]:
    """Deals a replica's devices (by request) out to the parts: per part, per request, the devices in their order.

    Raises `LayoutError` when a device finds no room or a part stays short.
    """
    left = {request: list(each) for request, each in devices.items()}
    dealt = []
    for part in layout:
        hands = []
        for request, count in part.requests:
            have = left.get(request, [])
            take = len(have) if count is None else min(count, len(have)) if request in part.upto else count
            if len(have) < take:
                held = counted(len(have), "device")
                raise LayoutError(f"request {request} holds {held} where its ResourceClaims have room for {take}")
            if take > DEVICES_PER_RESOURCE_CLAIM:
                raise LayoutError(
                    f"request {request} holds {take} devices, more than {DEVICES_PER_RESOURCE_CLAIM} with all: true"
                )
            hands.append((request, tuple(have[:take])))
            left[request] = have[take:]
        dealt.append(tuple(hands))
    over = next((request for request, rest in left.items() if rest), None)
    if over is not None:
        raise LayoutError(f"request {over} holds more devices than the claim asks for")
    return tuple(dealt)
