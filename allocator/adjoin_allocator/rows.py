"""Which row of a matrix stands for which device.

In come a parsed matrix and what is known of the node's devices, out goes a row for each of a pool's devices or a
sentence that says why there is none. Every GPU and NIC that the pool offers on the node must find its row; rows that no
device of the pool is on (storage NICs) are left alone.

Identity comes first: NICs by the names of the legend, GPUs by the list of addresses or uuids beside the matrix. Order
is believed only when there is no such identity and the matrix has exactly as many rows as the node has devices of that
type, in any pool and whoever holds them or keeps them back: rows are positions in the machine, so a device that cannot
be given out still has its row. A list of identities that does not name a device is never overruled by order.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

from adjoin_allocator.cel import AttributeValue
from adjoin_allocator.matrix import Matrix
from adjoin_allocator.model import Device, natural_key
from adjoin_allocator.terms import DeviceType

_NIC_NAMES = ("dra.net/rdmaDevice", "dra.net/ifName", "adjoin.dev/rdmaDevice", "adjoin.dev/ifName")
"""Where a NIC's name in the operating system is read from, in the order in which they are looked for in the legend."""

_PCI = re.compile(r"(?:([0-9a-f]{1,8}):)?([0-9a-f]{1,2}):([0-9a-f]{1,2})\.([0-7])", re.IGNORECASE)


class Sighting(NamedTuple):
    """What of a device can tell its row; equal on nodes of one shape, so that their answer is found again."""

    type: DeviceType
    driver: str
    name: str
    pci: tuple[int, ...]
    number: int | None
    nic_names: tuple[str, ...]
    ids: tuple[str, ...]


class Misfit(NamedTuple):
    """Why a matrix cannot be used with these devices."""

    message: str


@lru_cache(maxsize=4096)
def pci_address(text: str) -> tuple[int, ...]:
    """A PCI address as numbers, so that `00000000:07:00.0` and `0000:07:00.0` are one; empty when it is none."""
    found = _PCI.fullmatch(text)
    return tuple(int(part or "0", 16) for part in found.groups()) if found else ()


def sight(device: Device, pci_keys: Sequence[str], *, with_uuid: bool) -> Sighting:
    """What of `device` can tell its row; its uuid only if asked, since that is different on every node."""
    attributes = device.attributes
    pci = pci_address(_text(next((value for key in pci_keys if (value := attributes.get(key)) is not None), None)))
    # A device that has vanished has no attributes left, but it may be known by its address.
    own_pci = pci or pci_address(device.hardware_id)
    if device.type is DeviceType.GPU:
        numbers = (attributes.get(f"{device.driver}/{name}") for name in ("minor", "index"))
        number = next((number for number in numbers if type(number) is int), None)
        ids = [_spelling(own_pci)] if own_pci else []
        if with_uuid:
            uuids = (_text(attributes.get(f"{device.driver}/uuid")), device.hardware_id)
            ids += [uuid.casefold() for uuid in uuids if uuid]
        return Sighting(device.type, device.driver, device.id.device, own_pci, number, (), tuple(ids))
    names = tuple(name for key in _NIC_NAMES if (name := _text(attributes.get(key))))
    return Sighting(device.type, device.driver, device.id.device, own_pci, None, names, ())


def names_of_rows(driver: str, pci_keys: Sequence[str], *, with_uuid: bool) -> tuple[str, ...]:
    """The attributes that `sight` reads of a device of `driver`."""
    uuid = (f"{driver}/uuid",) if with_uuid else ()
    return (*pci_keys, f"{driver}/minor", f"{driver}/index", *uuid, *_NIC_NAMES)


@lru_cache(maxsize=64)
def needs_uuid(gpu_ids: tuple[str, ...]) -> bool:
    """Whether a list beside a matrix names GPUs by something else than PCI addresses."""
    return any(not pci_address(text.strip()) for text in gpu_ids)


def match_rows(
    matrix: Matrix, gpu_ids: Sequence[str], beside: Sequence[Sighting], own: Sequence[int]
) -> tuple[int, ...] | Misfit:
    """The row of each device `beside[i]` for i in `own`.

    Args:
        matrix: The matrix of the node.
        gpu_ids: One PCI address or uuid for each GPU row, or nothing.
        beside: All GPUs and NICs of the node, in any pool.
        own: Which of them need a row.
    """
    gpus = [index for index in own if beside[index].type is DeviceType.GPU]
    nics = [index for index in own if beside[index].type is DeviceType.RDMA]
    rows: dict[int, int] = {}
    if gpus:
        found = _listed_gpus(matrix, gpu_ids, beside, gpus) if gpu_ids else _gpus_by_order(matrix, beside)
        if isinstance(found, Misfit):
            return found
        rows |= found
    if nics:
        found = _named_nics(matrix, beside, nics) or _nics_by_order(matrix, beside, nics)
        if isinstance(found, Misfit):
            return found
        rows |= {index: row + len(matrix.gpus) for index, row in found.items()}
    return tuple(rows[index] for index in own)


def _listed_gpus(
    matrix: Matrix, gpu_ids: Sequence[str], beside: Sequence[Sighting], gpus: Sequence[int]
) -> dict[int, int] | Misfit:
    listed = [_identity(text.strip()) for text in gpu_ids]
    if len(listed) != len(matrix.gpus):
        return Misfit(f"the list of GPUs beside it has {len(listed)} entries, the matrix {len(matrix.gpus)} GPU rows")
    if len(set(listed)) != len(listed):
        return Misfit("the list of GPUs beside it names one GPU twice")
    rows: dict[int, int] = {}
    for index in gpus:
        row = next((listed.index(identity) for identity in beside[index].ids if identity in listed), None)
        if row is None:
            return Misfit(f"GPU {beside[index].name} is not in the list of GPUs beside it")
        if row in rows.values():
            return Misfit(f"two GPUs are entry {row + 1} of the list of GPUs beside it, one is {beside[index].name}")
        rows[index] = row
    return rows


def _gpus_by_order(matrix: Matrix, beside: Sequence[Sighting]) -> dict[int, int] | Misfit:
    gpus = [index for index, device in enumerate(beside) if device.type is DeviceType.GPU]
    if len(gpus) != len(matrix.gpus):
        return Misfit(f"the matrix has {len(matrix.gpus)} GPU rows, the node has {len(gpus)} GPUs in all pools")
    return _ordered(beside, gpus, (lambda gpu: gpu.pci or None, lambda gpu: gpu.number))


def _named_nics(matrix: Matrix, beside: Sequence[Sighting], nics: Sequence[int]) -> dict[int, int] | None:
    """By the names of the legend, all or none."""
    known = {name: row for row, name in enumerate(matrix.nic_devices) if name is not None}
    rows: dict[int, int] = {}
    for index in nics:
        names = (*beside[index].nic_names, beside[index].name)
        row = next((known[name] for name in names if name in known), None)
        if row is None or row in rows.values():
            return None
        rows[index] = row
    return rows


def _nics_by_order(matrix: Matrix, beside: Sequence[Sighting], own: Sequence[int]) -> dict[int, int] | Misfit:
    nics = [index for index, device in enumerate(beside) if device.type is DeviceType.RDMA]
    if len(nics) != len(matrix.nics):
        names = {name for name in matrix.nic_devices if name is not None}
        strange = next(
            (beside[index].name for index in own if names.isdisjoint((*beside[index].nic_names, beside[index].name))),
            None,
        )
        why = f", and NIC {strange} is not among the names in the matrix" if names and strange else ""
        counts = f"the matrix has {len(matrix.nics)} NIC rows, the node has {len(nics)} RDMA devices in all pools"
        return Misfit(counts + why)
    # The driver numbers its devices as the matrix does, so its names say the order where all have one.
    return _ordered(
        beside,
        nics,
        (lambda nic: natural_key(nic.nic_names[0]) if nic.nic_names else None, lambda nic: nic.pci or None),
    )


def _ordered(
    beside: Sequence[Sighting], devices: Sequence[int], keys: Sequence[Callable[[Sighting], Any]]
) -> dict[int, int] | Misfit:
    """Numbers `devices` by the first key that all of them have, and by name where none has any.

    A key that only some have tells no order: a device that has vanished is still counted, but says nothing of itself.
    """
    usable: Callable[[Sighting], Any] = lambda _: 0  # noqa: E731
    for key in keys:
        silent = [index for index in devices if key(beside[index]) is None]
        if not silent:
            usable = key
            break
        if len(silent) < len(devices):
            usable = key
    else:
        without = next((index for index in devices if usable(beside[index]) is None), None)
        if without is not None:
            return Misfit(f"{beside[without].name} does not tell its place among the others, so rows have no order")
    ordered = sorted(
        devices,
        key=lambda index: (usable(beside[index]), natural_key(beside[index].name), natural_key(beside[index].driver)),
    )
    return {index: row for row, index in enumerate(ordered)}


def _identity(text: str) -> str:
    """One spelling for a PCI address or a uuid."""
    pci = pci_address(text)
    return _spelling(pci) if pci else text.casefold()


def _spelling(pci: tuple[int, ...]) -> str:
    return "{:08x}:{:02x}:{:02x}.{:x}".format(*pci)


def _text(value: AttributeValue | None) -> str:
    return value if isinstance(value, str) else ""
