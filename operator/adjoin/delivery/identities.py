"""By which names containers and networks are told of a device.

In come devices as they are today and how they are wired; out go names that hold for the hardware itself: a uuid, a PCI
address, the kernel's name of an RDMA device. A position in a list is never one of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from adjoin_allocator.model import Device, Pool
from adjoin_allocator.pairing import pair
from adjoin_allocator.pci import pci_address, spelling
from adjoin_allocator.terms import DeviceType
from adjoin_allocator.topology import attribute_values, wire

_HCA_KEYS: Final = ("dra.net/rdmaDevice", "adjoin.dev/rdmaDevice")
_PCI_NAMES: Final = ("pciBusID", "pciAddress", "pciAddr")


def uuid_of(device: Device) -> str:
    """The device's uuid, or ""."""
    text = device.hardware_id
    return "" if "/" in text or pci_address(text) else text


def pci_of(device: Device, pool: Pool | None) -> str:
    """The device's PCI address as the kernel spells it, or ""."""
    found = [device.hardware_id]
    if pool is not None:
        found += [str(value) for value in attribute_values(device, pool, "pciBusID") or ()]
    found += [str(device.attributes.get(f"{device.driver}/{name}") or "") for name in _PCI_NAMES]
    return next((spelling(address) for text in found if (address := pci_address(text))), "")


def hca_of(device: Device) -> str:
    """The kernel's name of an RDMA device (`mlx5_0`), or ""."""
    values = (device.attributes.get(key) for key in _HCA_KEYS)
    return next((value for value in values if isinstance(value, str) and value), "")


def identity_of(device: Device, pool: Pool | None) -> str:
    """By what a container can find the device on its node: its uuid, else its PCI address, else of a NIC its RDMA
    device; "" where nothing is known but a position."""
    return uuid_of(device) or pci_of(device, pool) or (hca_of(device) if device.type is DeviceType.RDMA else "")


def by_rank(
    gpus: Sequence[Device], nics: Sequence[Device], beside: Sequence[Device], pool: Pool | None
) -> tuple[Device, ...]:
    """The NICs in the order of the GPUs that they are next to, so that process i finds its NIC at place i; without GPUs
    in their own order."""
    if pool is None or not gpus or not nics:
        return tuple(nics)
    mine = [device for device in beside if device.device_pool == pool.name]
    places = {device.id: place for place, device in enumerate(mine)}
    if any(device.id not in places for device in (*gpus, *nics)):
        return tuple(nics)
    wiring, _ = wire(mine, pool, beside)
    left, right = [places[gpu.id] for gpu in gpus], [places[nic.id] for nic in nics]
    found = pair(left, right, lambda gpu, nic: wiring.rank[gpu][nic] * _FINE + min(wiring.fine[gpu][nic], _FINE - 1))
    if found is None:
        return tuple(nics)
    turn = {place: number for number, place in enumerate(left)}
    first: dict[int, int] = {}
    for gpu, nic in found[1]:
        first[nic] = min(turn[gpu], first.get(nic, len(left)))
    return tuple(nic for _, nic in sorted(enumerate(nics), key=lambda each: (first[places[each[1].id]], each[0])))


_FINE: Final = 1 << 10
"""Above every fineness within one rank."""
