"""NCCL's topology XML → `Matrix`: what `NCCL_TOPO_DUMP_FILE` writes, and the files that clouds ship for
`NCCL_TOPO_FILE`. RCCL's is the same with `<xgmi>` for `<nvlink>`.

`<cpu>` is a NUMA node. A `<pci>` with others in it is a whole PCIe switch (NCCL leaves out downstream ports and root
ports), one without is a device: a GPU or NIC by the element in it, else by its class, else not said. Host bridges are
not in these files. A NIC that hangs from `<cpu>` or a `<nic>` without `<pci>` was put there because nobody knew its
place, so its place is unknown here too.

`<nvlink>` leads to a GPU or, on machines with NVSwitches, to one of those: two GPUs have as many links as both have to
the same switches, which is what `nvidia-smi` prints. Links to CPUs and to GPUs that are not in the file have no cell.
A GPU without `<gpu>` says nothing of its links. Elements that are not known are passed over, as NCCL does, unless they
have a `<pci>` in them.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations

from adjoin_allocator.formats.elements import Element
from adjoin_allocator.formats.tree import Part, PartKind, Row, RowKind, check_rows, kind_of_class, matrix_of
from adjoin_allocator.matrix import Matrix, MatrixError
from adjoin_allocator.pci import PciAddress, pci_address

ROOT = "system"
VERSIONS = ("1", "2")
"""NCCL writes 1, RCCL 2."""

MOST_LINKS = 1000
"""More links than a GPU has to one other device."""

_CLASS = re.compile(r"0x[0-9a-fA-F]{4,6}")
_NUMBER = re.compile(r"-?[0-9]{1,9}")
_NVSWITCH = "0x0680"
_LINK_TO_CPU = "0x068001"


@dataclass(frozen=True, slots=True, eq=False)
class _Links:
    """What a GPU's element says: how many links to which GPU, and to which NVSwitch."""

    line: int
    gpus: Counter[PciAddress] = field(default_factory=Counter)
    switches: Counter[str] = field(default_factory=Counter)


def read(root: Element) -> Matrix:
    """The matrix of a `<system>`. Raises `MatrixError` with the line that does not fit."""
    version = root.need("version")
    if version not in VERSIONS:
        known = " and ".join(VERSIONS)
        raise MatrixError(root.line, f"version {version} of <{ROOT}> is not known, {known} are")
    reader = _Reader()
    cpus: dict[int, Element] = {}
    for child in root.children:
        if child.tag != "cpu":
            _refuse_hidden_devices(child)
            continue
        node = _number(child, "numaid")
        first = cpus.setdefault(node, child)
        if first is not child:
            problem = f"<cpu numaid={node}> is there twice, first in line {first.line}; the file must be of one host"
            raise MatrixError(child.line, problem)
        reader.cpu(child, frozenset({node}) if node >= 0 else None)
    if not reader.rows:
        raise MatrixError(root.line, f"there is no GPU and no NIC in <{ROOT}>")
    check_rows(reader.rows)
    return matrix_of(reader.rows, reader.links())


class _Reader:
    """The devices found so far."""

    def __init__(self) -> None:
        self.rows: list[Row] = []
        self._links: dict[Row, _Links] = {}

    def cpu(self, element: Element, numa: frozenset[int] | None) -> None:
        """Everything under one NUMA node."""
        for child in element.children:
            if child.tag == "pci":
                self._pci(child, (), numa)
            elif child.tag in ("nic", "net"):
                _refuse_hidden_devices(child)
                nets = [child] if child.tag == "net" else [each for each in child.children if each.tag == "net"]
                for net in nets:
                    name = net.need("name")
                    self.rows.append(Row(net.line, RowKind.NIC, (), (name,), (), None, placed=False, silent=False))
            else:
                _refuse_hidden_devices(child)

    def _pci(self, element: Element, way: tuple[Part, ...], numa: frozenset[int] | None) -> None:
        address = pci_address(element.need("busid"))
        if not address:
            raise MatrixError(element.line, f"busid {element.attributes['busid']} is no PCI address")
        pci_class = element.attributes.get("class")
        if pci_class is not None and not _CLASS.fullmatch(pci_class):
            raise MatrixError(element.line, f"class {pci_class} is no PCI class such as 0x030200")
        below = [child for child in element.children if child.tag == "pci"]
        gpus = [child for child in element.children if child.tag == "gpu"]
        nics = [child for child in element.children if child.tag in ("nic", "net")]
        for child in element.children:
            if child.tag != "pci":
                _refuse_hidden_devices(child)
        if len(gpus) > 1 or (gpus and nics) or (below and (gpus or nics)):
            problem = f"<pci busid={element.attributes['busid']}> must be one of a switch, a GPU and a NIC"
            raise MatrixError(element.line, problem)
        if below:
            inner = (*way, Part(PartKind.SWITCH))
            for child in below:
                self._pci(child, inner, numa)
            return
        kind = _kind(bool(gpus), bool(nics), pci_class)
        if kind is None:
            return
        names = tuple(dict.fromkeys(net.need("name") for nic in nics for net in _nets(nic)))
        row = Row(element.line, kind, address, names, way, numa, silent=kind is not RowKind.NIC and not gpus)
        self.rows.append(row)
        if gpus:
            self._links[row] = _links_of(gpus[0])

    def links(self) -> Mapping[frozenset[Row], int]:
        """How many links each pair of GPUs has."""
        found: dict[frozenset[Row], int] = {}
        for (one, mine), (other, theirs) in combinations(self._links.items(), 2):
            there, back = mine.gpus[other.address], theirs.gpus[one.address]
            if there != back:
                problem = (
                    f"GPU {other.title} has {back} links to {one.title}, which has {there} to it (line {mine.line}); "
                    "both directions must be the same"
                )
                raise MatrixError(theirs.line, problem)
            count = there + sum((mine.switches & theirs.switches).values())
            if count:
                found[frozenset((one, other))] = count
        # Links to a GPU that says nothing of its own.
        silent = {row.address: row for row in self.rows if row.silent and row.address}
        for one, mine in self._links.items():
            for address, count in mine.gpus.items():
                if count and address in silent:
                    found[frozenset((one, silent[address]))] = count
        return found


def _kind(gpu: bool, nic: bool, pci_class: str | None) -> RowKind | None:
    if gpu or nic:
        return RowKind.GPU if gpu else RowKind.NIC
    return RowKind.UNSAID if pci_class is None else kind_of_class(pci_class.removeprefix("0x"))


def _nets(nic: Element) -> Sequence[Element]:
    return [nic] if nic.tag == "net" else [child for child in nic.children if child.tag == "net"]


def _links_of(gpu: Element) -> _Links:
    links = _Links(gpu.line)
    for element in gpu.children:
        if element.tag not in ("nvlink", "xgmi"):
            continue
        target, count = element.need("target"), _number(element, "count")
        if not 0 <= count <= MOST_LINKS:
            raise MatrixError(element.line, f"count {count} is no number of links")
        kind = element.attributes.get("tclass", "").casefold()
        if kind.startswith(_LINK_TO_CPU):
            continue
        if kind.startswith(_NVSWITCH):
            # A virtual machine that does not see its NVSwitches has one name for all of them, which is no address.
            links.switches[target.casefold()] += count
            continue
        address = pci_address(target)
        if not address:
            raise MatrixError(element.line, f"target {target} is no PCI address")
        links.gpus[address] += count
    return links


def _number(element: Element, name: str) -> int:
    text = element.need(name)
    if not _NUMBER.fullmatch(text):
        raise MatrixError(element.line, f"<{element.tag}> has {name} {text}, which is no number")
    return int(text)


def _refuse_hidden_devices(element: Element) -> None:
    """A device in an element that is passed over would be lost without a word."""
    for inner in _descendants(element):
        if inner.tag == "pci":
            raise MatrixError(inner.line, f"<pci> inside <{element.tag}> is not known")


def _descendants(element: Element) -> Iterator[Element]:
    for child in element.children:
        yield child
        yield from _descendants(child)
