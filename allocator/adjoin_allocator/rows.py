"""Which row of a matrix stands for which device.

In come a parsed matrix and what is known of the node's devices, out goes a row for each of a pool's devices or a
sentence that says why there is none. Every GPU and NIC that the pool offers on the node must find its row; rows that no
device of the pool is on (storage NICs) are left alone.

Identity comes first: NICs by the names of the legend, GPUs by the list of addresses or uuids beside the matrix. Order
is believed only when there is no such identity and the matrix has exactly as many rows as the node has devices of that
type, in any pool and whoever holds them or keeps them back: rows are positions in the machine, so a device that cannot
be given out still has its row. A list of identities that does not name a device is never overruled by order.

A text with PCI addresses (XML) is read by address: GPUs and NICs by theirs, a NIC that publishes none by its name, a
GPU that publishes none by its uuid in the list beside the text. Devices of one address (parts of a card) share its row.
Order is left for a type of which no device on the node says anything of itself, with as many rows as devices.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

from adjoin_allocator.amounts import counted
from adjoin_allocator.cel import AttributeValue
from adjoin_allocator.matrix import Matrix
from adjoin_allocator.model import Device, natural_key
from adjoin_allocator.pci import pci_address, spelling
from adjoin_allocator.terms import DeviceType

_NIC_NAMES = ("dra.net/rdmaDevice", "dra.net/ifName", "adjoin.dev/rdmaDevice", "adjoin.dev/ifName")
"""Where a NIC's name in the operating system is read from, in the order in which they are looked for in the legend."""


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


def sight(device: Device, pci_keys: Sequence[str], *, with_uuid: bool) -> Sighting:
    """What of `device` can tell its row; its uuid only if asked, since that is different on every node."""
    attributes = device.attributes
    pci = pci_address(_text(next((value for key in pci_keys if (value := attributes.get(key)) is not None), None)))
    # A device that has vanished has no attributes left, but it may be known by its address.
    own_pci = pci or pci_address(device.hardware_id)
    if device.type is DeviceType.GPU:
        numbers = (attributes.get(f"{device.driver}/{name}") for name in ("minor", "index"))
        number = next((number for number in numbers if type(number) is int), None)
        ids = [spelling(own_pci)] if own_pci else []
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
    if matrix.addresses:
        addressed = _addressed(matrix, gpu_ids, beside, (*gpus, *nics))
        return addressed if isinstance(addressed, Misfit) else tuple(addressed[index] for index in own)
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


def _addressed(
    matrix: Matrix, gpu_ids: Sequence[str], beside: Sequence[Sighting], own: Sequence[int]
) -> dict[int, int] | Misfit:
    """Rows by PCI address; by name or by the list of uuids for devices that publish no address."""
    first_nic, first_unsorted = len(matrix.gpus), len(matrix.gpus) + len(matrix.nics)
    of_type = {DeviceType.GPU: range(first_nic), DeviceType.RDMA: range(first_nic, first_unsorted)}
    by_address = {address: row for row, address in enumerate(matrix.addresses) if address}
    listed = {text.strip().casefold(): row for row, text in enumerate(gpu_ids) if not pci_address(text.strip())}
    if listed and len(gpu_ids) != len(matrix.gpus):
        return Misfit(f"{_list(len(gpu_ids))}, the text {counted(len(matrix.gpus), 'GPU')}")
    rows: dict[int, int] = {}
    for kind in (DeviceType.GPU, DeviceType.RDMA):
        mine = [index for index in own if beside[index].type is kind]
        if mine and not matrix.unsorted and not _tells(matrix, beside, kind, bool(listed)):
            found = _gpus_by_order(matrix, beside) if kind is DeviceType.GPU else _nics_by_order(matrix, beside, mine)
            if isinstance(found, Misfit):
                return found
            order = _order_of_rows(matrix, kind)
            rows |= {index: order[found[index]] for index in mine}
    for index in own:
        if index in rows:
            continue
        device = beside[index]
        row = by_address.get(device.pci)
        by_uuid = next((listed[identity] for identity in device.ids if identity in listed), None)
        if row is not None and by_uuid is not None and row != by_uuid:
            where = f"sits at {spelling(device.pci)}, which is entry {row + 1}"
            return Misfit(f"GPU {device.name} is entry {by_uuid + 1} of the list of GPUs beside it, but {where}")
        if row is None and not device.pci:
            row = by_uuid if device.type is DeviceType.GPU else _named_row(matrix, device)
        if row is None or (row < first_unsorted and row not in of_type[device.type]):
            return Misfit(_stranger(matrix, device, row))
        rows[index] = row
    return rows


def _tells(matrix: Matrix, beside: Sequence[Sighting], kind: DeviceType, listed: bool) -> bool:
    """Whether any device of a type says something of itself, or a list does for all of them."""
    devices = [device for device in beside if device.type is kind]
    if kind is DeviceType.GPU:
        return listed or any(device.pci for device in devices)
    return any(nic.pci or nic.nic_names or _named_row(matrix, nic) is not None for nic in devices)


def _order_of_rows(matrix: Matrix, kind: DeviceType) -> list[int]:
    """The rows of a type as `nvidia-smi` numbers its own: GPUs by address, NICs by name where all have one."""
    if kind is DeviceType.GPU:
        return list(range(len(matrix.gpus)))
    rows = list(range(len(matrix.gpus), len(matrix.gpus) + len(matrix.nics)))
    names = dict(zip(rows, matrix.nic_devices, strict=True))
    return rows if None in names.values() else sorted(rows, key=lambda row: natural_key(names[row] or ""))


def _named_row(matrix: Matrix, nic: Sighting) -> int | None:
    """The row of a NIC by one of its names, among those that no other row has too."""
    rows: dict[str, int | None] = {}
    for place, device in enumerate(matrix.nic_devices):
        aliases = matrix.nic_aliases[place] if matrix.nic_aliases else ()
        for name in (*((device,) if device is not None else ()), *aliases):
            rows[name] = None if name in rows else len(matrix.gpus) + place
    return next((row for name in (*nic.nic_names, nic.name) if (row := rows.get(name)) is not None), None)


def _stranger(matrix: Matrix, device: Sighting, row: int | None) -> str:
    """Why a device has no row."""
    word = "GPU" if device.type is DeviceType.GPU else "NIC"
    counts = f"{counted(len(matrix.gpus), 'GPU')} and {counted(len(matrix.nics), 'NIC')}"
    if row is not None:
        return f"{word} {device.name} sits at {spelling(device.pci)}, where the text has {_OTHER[word]}"
    if device.pci:
        return f"{word} {device.name} sits at {spelling(device.pci)}, which is not among its {counts}"
    beyond = "" if word == "GPU" else ", nor a name that is in it"
    return f"{word} {device.name} publishes no PCI address{beyond}, so it is not found among its {counts}"


_OTHER = {"GPU": "a NIC", "NIC": "a GPU"}


def _listed_gpus(
    matrix: Matrix, gpu_ids: Sequence[str], beside: Sequence[Sighting], gpus: Sequence[int]
) -> dict[int, int] | Misfit:
    listed = [_identity(text.strip()) for text in gpu_ids]
    if len(listed) != len(matrix.gpus):
        return Misfit(f"{_list(len(listed))}, the matrix {counted(len(matrix.gpus), 'GPU row')}")
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


def _list(entries: int) -> str:
    return f"the list of GPUs beside it has {'1 entry' if entries == 1 else f'{entries} entries'}"


def _gpus_by_order(matrix: Matrix, beside: Sequence[Sighting]) -> dict[int, int] | Misfit:
    gpus = [index for index, device in enumerate(beside) if device.type is DeviceType.GPU]
    if len(gpus) != len(matrix.gpus):
        told = f"the matrix has {counted(len(matrix.gpus), 'GPU row')}, the node has"
        return Misfit(f"{told} {counted(len(gpus), 'GPU')} in all pools")
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
        rows = counted(len(matrix.nics), "NIC row")
        counts = f"the matrix has {rows}, the node has {counted(len(nics), 'RDMA device')} in all pools"
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
    return spelling(pci) if pci else text.casefold()


def _text(value: AttributeValue | None) -> str:
    return value if isinstance(value, str) else ""
