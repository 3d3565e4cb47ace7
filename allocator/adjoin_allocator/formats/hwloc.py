"""hwloc's XML (format 2, as `lstopo --of xml` writes it) → `Matrix`.

Objects hold each other: the machine its packages and NUMA nodes, and whichever of those a host bridge is near to holds
that bridge; under it are PCI bridges (one object for each port of a switch) and PCI devices, and in those what the
operating system calls them. A device's NUMA nodes are the `nodeset` of what holds its host bridge; where that is the
whole machine and the machine has several, nobody knows. Objects that were filtered out when the file was written are
not missed, but what they would have told is unknown.

A GPU is a display controller or accelerator, without the graphics chip of a management controller or an emulated one.
NVLinks are not in the tree of these files and stay unknown, so write down `nvidia-smi topo -m` or NCCL's XML for a
machine that has any.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from adjoin_allocator.formats.elements import Element
from adjoin_allocator.formats.tree import Part, PartKind, Row, RowKind, check_rows, kind_of_class, matrix_of
from adjoin_allocator.matrix import Matrix, MatrixError
from adjoin_allocator.pci import pci_address

ROOT = "topology"

_TYPE = re.compile(r"([0-9a-f]{4}) \[([0-9a-f]{4}):[0-9a-f]{4}\].*", re.IGNORECASE)
_BITMAP = re.compile(r"(?:0x[0-9a-f]{1,8})?(?:,(?:0x[0-9a-f]{1,8})?){0,255}", re.IGNORECASE)

_VGA = "0300"
_SCREENS_ONLY = frozenset(
    ("1a03", "102b", "126f", "18ca", "19e5", "1013", "1234", "1af4", "1b36", "15ad", "1414", "1d0f")
)
"""Vendors whose VGA controllers are those of management controllers (ASPEED, Matrox, Silicon Motion, XGI, Huawei) and
of emulators (Cirrus, Bochs, virtio, Red Hat, VMware, Hyper-V, EC2), by the PCI ID repository."""

_RDMA, _NETWORK = "3", "2"
"""`osdev_type` of an RDMA device and of a network interface."""


def read(root: Element) -> Matrix:
    """The matrix of a `<topology>`. Raises `MatrixError` with the line that does not fit."""
    version = root.attributes.get("version", "1")
    if version.partition(".")[0] != "2":
        problem = f"hwloc's XML format {version} is not read; lstopo of hwloc 2 writes format 2"
        raise MatrixError(root.line, problem)
    machines = [child for child in root.children if child.tag == "object"]
    if len(machines) != 1:
        raise MatrixError(root.line, f"{len(machines)} objects are outermost, one Machine is needed")
    machine = machines[0]
    nodes = _nodeset(machine)
    everywhere = nodes if nodes is not None and len(nodes) > 1 else None
    rows = list(_devices(machine, (), None, everywhere))
    if not rows:
        raise MatrixError(machine.line, "there is no GPU and no NIC; write the file with PCI devices in it")
    check_rows(rows)
    return matrix_of(rows, {})


def _devices(
    element: Element, way: tuple[Part, ...], numa: frozenset[int] | None, everywhere: frozenset[int] | None
) -> Iterator[Row]:
    kind = element.need("type")
    if kind == "PCIDev":
        row = _device(element, way, numa)
        if row is not None:
            yield row
    elif kind == "Bridge":
        way = (*way, Part(_bridge(element)))
    elif kind not in ("OSDev", "Misc"):
        # Where it does not say, it is as near as what holds it.
        nodes = _nodeset(element)
        numa = numa if nodes is None else None if nodes == everywhere else nodes
    for child in element.children:
        if child.tag == "object":
            yield from _devices(child, way, numa, everywhere)


def _bridge(element: Element) -> PartKind:
    match element.need("bridge_type"):
        case "0-1":
            return PartKind.HOST_BRIDGE
        case "1-1":
            return PartKind.PORT
        case other:
            raise MatrixError(element.line, f"bridge_type {other} is not known, 0-1 and 1-1 are")


def _device(element: Element, way: tuple[Part, ...], numa: frozenset[int] | None) -> Row | None:
    text = element.need("pci_busid")
    address = pci_address(text)
    if not address:
        raise MatrixError(element.line, f"pci_busid {text} is no PCI address")
    found = _TYPE.fullmatch(element.need("pci_type"))
    if found is None:
        problem = f"pci_type {element.attributes['pci_type']} does not start with a class and [vendor:device]"
        raise MatrixError(element.line, problem)
    pci_class, vendor = found[1].casefold(), found[2].casefold()
    kind = kind_of_class(pci_class)
    if kind is None or (pci_class == _VGA and vendor in _SCREENS_ONLY):
        return None
    named: dict[str, list[str]] = {_RDMA: [], _NETWORK: []}
    for child in element.children:
        if child.tag == "object" and child.attributes.get("type") == "OSDev":
            of_kind = named.get(child.attributes.get("osdev_type", ""))
            if of_kind is not None:
                of_kind.append(child.need("name"))
    names = tuple(dict.fromkeys((*named[_RDMA], *named[_NETWORK]))) if kind is RowKind.NIC else ()
    return Row(element.line, kind, address, names, way, numa, silent=kind is RowKind.GPU)


def _nodeset(element: Element) -> frozenset[int] | None:
    """The NUMA nodes of an object, by the numbers of the operating system; None where it does not say."""
    text = element.attributes.get("nodeset")
    if text is None:
        return None
    if not text or not _BITMAP.fullmatch(text):
        raise MatrixError(element.line, f"nodeset {text} is no bitmap such as 0x00000003")
    value = 0
    for word in text.split(","):
        value = value << 32 | int(word or "0", 16)
    return frozenset(bit for bit in range(value.bit_length()) if value >> bit & 1) or None
