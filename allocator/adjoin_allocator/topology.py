"""Node wiring: how near the devices of one pool sit to each other on one node, as integer tables.

In come the devices of a node, the pool's aliases and the pool's matrix for that node; out goes a `Wiring`: for every
pair its rank, for every scope the pairs that are proven to be within it and the pairs of which that is unknown.
Nothing here reads who holds a device, and nothing is guessed: unknown is never equal to unknown, and a matrix that
does not fit the node is not used at all.

**Which attributes are read.** A name without a domain is an alias. It is read through the keys that the pool lists
for it in `topology.attributes`; where the pool does not list it, through the defaults of `DEFAULT_KEYS`; and in both
cases through `adjoin.dev/<name>` last, which is how static devices publish the well-known facts, so that they need no
entry. The first present key wins, also when its value says nothing. The defaults are the standard keys of Kubernetes,
and `dra.net/numaNode` because there is no standard key in use for the NUMA node and that one is the kernel's number,
comparable between drivers. No driver's own `pciRoot` is read by default: its spelling of a root complex need not be
the standard's, and comparing two spellings would say "another root" where the truth is "unknown". No driver publishes
a switch, so `pcieSwitch` has only the static key.

What attributes and cells prove is told in `wiring`, how rows find their devices in `rows`.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from functools import lru_cache
from itertools import combinations

import networkx as nx

from adjoin_allocator.cel import AttributeScalar, AttributeValue
from adjoin_allocator.formats import read_topology
from adjoin_allocator.matrix import Matrix, MatrixError
from adjoin_allocator.model import Device, DeviceID, MatrixText, Pool
from adjoin_allocator.pci import pci_address
from adjoin_allocator.results import Mismatch
from adjoin_allocator.rows import Misfit, match_rows, names_of_rows, needs_uuid, sight
from adjoin_allocator.terms import DeviceType, Scope
from adjoin_allocator.wiring import LEVELS, Fact, Shape, Verdict, Wiring, bits, compile_wiring

__all__ = ["Verdict", "Wiring", "attribute_keys", "attribute_values", "bits", "graph", "wire"]

DEFAULT_KEYS: Mapping[str, tuple[str, ...]] = {
    "pcieRoot": ("resource.kubernetes.io/pcieRoot",),
    "numaNode": ("resource.kubernetes.io/numaNode", "dra.net/numaNode"),
    "pciBusID": ("resource.kubernetes.io/pciBusID", "dra.net/pciAddress"),
}
STATIC_DOMAIN = "adjoin.dev"

SHAPES = 1024
"""How many compiled wirings and essences are kept; a cluster has a few dozen shapes."""
MATRICES = 64
"""How many parsed matrices are kept; a pool has one a shape."""


def attribute_keys(pool: Pool, name: str) -> tuple[str, ...]:
    """The fully qualified attribute names that `name` (a full name or an alias) is read from, the first present one
    counts.
    """
    if "/" in name:
        return (name,)
    return _keys(name, pool.aliases.get(name))


@lru_cache(maxsize=256)
def _keys(alias: str, listed: tuple[str, ...] | None) -> tuple[str, ...]:
    keys = DEFAULT_KEYS.get(alias, ()) if listed is None else tuple(listed)
    static = f"{STATIC_DOMAIN}/{alias}"
    return keys if static in keys else (*keys, static)


def attribute_values(device: Device, pool: Pool, name: str) -> frozenset[AttributeScalar] | None:
    """What `device` says for the attribute or alias `name`: a set of one value, of several for a list, or None for
    unknown.

    Compare values with their type: a bool is no number. Unknown is an absent attribute, an empty list, and for the
    facts that topology is read from also a value that says nothing (a negative NUMA node, an empty root complex).
    """
    value = _read(device, attribute_keys(pool, name))
    if value is None:
        return None
    known: AttributeScalar | frozenset[int] | frozenset[str | int] | None
    if name == "numaNode" or name.endswith("/numaNode") or name in attribute_keys(pool, "numaNode"):
        known = _numa_fact(value)
    elif any(name == alias or name in attribute_keys(pool, alias) for alias in ("pcieRoot", "pcieSwitch")):
        known = _place_fact(value)
    else:
        return (frozenset(value) if isinstance(value, tuple) else frozenset((value,))) or None
    if known is None:
        return None
    return frozenset(known) if isinstance(known, frozenset) else frozenset((known,))


def wire(devices: Sequence[Device], pool: Pool, beside: Sequence[Device]) -> tuple[Wiring, Mismatch | None]:
    """The wiring of `devices` (those of `pool` on one node, in stable order).

    `beside` are all devices of every pool on that node, since rows of a matrix are numbered over all of them. The
    second value says why the pool's matrix for the node is not used, when it has one and it is not; attributes alone
    decide then. Costs a few reads a device when a node of that shape was seen before.
    """
    aliases = tuple(map(pool.aliases.get, _ALIASES))
    matrix = pool.matrices.get(devices[0].node) if devices else None
    if matrix is None:
        return _wire(aliases, None, _essences(devices, aliases, None), (), _leads(devices))[0], None
    places = {device.id: place for place, device in enumerate(beside)}
    unlisted = [device for device in devices if device.id not in places]
    places |= {device.id: place for place, device in enumerate(unlisted, start=len(beside))}
    essences = _essences((*beside, *unlisted), aliases, matrix)
    own = tuple([places[device.id] for device in devices])
    wiring, problem = _wire(aliases, matrix, essences, own, _leads((*beside, *unlisted)))
    return wiring, None if problem is None else Mismatch(devices[0].node, matrix.source, problem)


def _leads(devices: Sequence[Device]) -> tuple[int, ...]:
    """For each device the first one of its type that shares counters with it; nothing where nobody consumes any."""
    first: dict[tuple[DeviceType, str, str, str], int] = {}
    leads: list[int] = []
    for place, device in enumerate(devices):
        keys = [(device.type, device.id.driver, device.id.pool, name) for name in device.consumes]
        lead = min((first[key] for key in keys if key in first), default=place)
        leads.append(lead)
        for key in keys:
            first.setdefault(key, lead)
    return tuple(leads) if first else ()


def graph(devices: Sequence[Device], wiring: Wiring) -> nx.Graph[Hashable]:
    """The node as a graph to look at: host, NUMA nodes, root complexes, switches and devices as a tree, with NVLink
    edges across it.

    `devices` are those that `wiring` was made for. Vertices are `("host", name)`, `(scope, number)` and `("device",
    DeviceID)`; a device hangs from the nearest part that it is known to share with another one. Every edge has
    `level`, a word of `nvidia-smi topo`: the farthest on the way between two devices is how near they sit.
    """
    net: nx.Graph[Hashable] = nx.Graph()
    host: Hashable = ("host", devices[0].node if devices else "")
    net.add_node(host)
    parents: list[tuple[Hashable, str]] = [(host, LEVELS[Scope.NODE.rank])] * wiring.size
    for scope in (Scope.NUMA_NODE, Scope.PCIE_ROOT, Scope.PCIE_SWITCH):
        for number, mask in enumerate(wiring.islands[scope]):
            members = tuple(bits(mask))
            part: Hashable = (scope, number)
            above, level = parents[members[0]]
            net.add_edge(above, part, level=level)
            for member in members:
                parents[member] = (part, LEVELS[scope.rank])
    for device, (above, level) in zip(devices, parents, strict=True):
        net.add_edge(above, ("device", device.id), level=level)
    for one, other in combinations(range(wiring.size), 2):
        if wiring.level[one][other] == "NVLink":
            net.add_edge(("device", devices[one].id), ("device", devices[other].id), level="NVLink")
    return net


_ALIASES = ("pcieSwitch", "pcieRoot", "numaNode", "pciBusID")
_Aliases = tuple[tuple[str, ...] | None, ...]
"""What a pool lists for each of `_ALIASES`."""

_Essence = tuple[DeviceType, DeviceID, str, tuple[AttributeValue | None, ...], tuple[type, ...]]
"""All of a device that wiring can depend on: type, name, hardware id, and the values of the attributes that are read,
with their types because True equals 1. What does not count in a case is left empty there, first of all the uuids, so
that nodes of one shape have equal essences: making and hashing them is all that a node of a known shape costs."""

_Key = int | frozenset[int] | None
"""A fact in the key of a compiled wiring."""


def _essences(devices: Sequence[Device], aliases: _Aliases, matrix: MatrixText | None) -> tuple[_Essence, ...]:
    """Runs for every node that changed, so it is written for speed: plain tuples, list comprehensions."""
    if matrix is None:
        names = _names_read(aliases)
        found = [tuple(map(device.attributes.get, names)) for device in devices]
        return tuple([(DeviceType.OTHER, _NOBODY, "", values, tuple(map(type, values))) for values in found])
    gpu_ids = matrix.gpu_ids
    with_uuid = needs_uuid(gpu_ids)
    parsed = _parsed(matrix.text)
    by_address = bool(gpu_ids) or (isinstance(parsed, Matrix) and bool(parsed.addresses))
    essences = []
    for device in devices:
        driver, _, name = device.id
        told = with_uuid or (by_address and pci_address(device.hardware_id))
        hardware_id = device.hardware_id if told else ""
        values = tuple(map(device.attributes.get, _names_read(aliases, driver, with_uuid)))
        essences.append((device.type, DeviceID(driver, "", name), hardware_id, values, tuple(map(type, values))))
    return tuple(essences)


_NOBODY = DeviceID("", "", "")


@lru_cache(maxsize=256)
def _names_read(aliases: _Aliases, driver: str = "", with_uuid: bool = False) -> tuple[str, ...]:
    """The attributes that an essence holds. Without a driver those of the facts, with one also those that tell rows."""
    switch, root, numa, pci = (_keys(alias, listed) for alias, listed in zip(_ALIASES, aliases, strict=True))
    return (*switch, *root, *numa, *(names_of_rows(driver, pci, with_uuid=with_uuid) if driver else ()))


@lru_cache(maxsize=SHAPES)
def _wire(
    aliases: _Aliases,
    matrix: MatrixText | None,
    essences: tuple[_Essence, ...],
    own: tuple[int, ...],
    leads: tuple[int, ...] = (),
) -> tuple[Wiring, str | None]:
    """The wiring of a node's essence, and why its matrix is not used.

    Without a matrix `essences` are those of the devices asked for; with one they are those of all devices on the node,
    and `own` says which of them, in which order. `leads`: of each of them the first device on its card; nothing where
    all are cards.
    """
    switch, root, numa, pci = (_keys(alias, listed) for alias, listed in zip(_ALIASES, aliases, strict=True))
    with_uuid = matrix is not None and needs_uuid(matrix.gpu_ids)
    everything = []
    for kind, name, hardware_id, values, _ in essences:
        names = _names_read(aliases, name.driver, with_uuid)
        attributes = {name: value for name, value in zip(names, values, strict=True) if value is not None}
        everything.append(Device(name, "", "", "", kind, hardware_id, attributes, {}))
    places = range(len(everything)) if matrix is None else own
    devices = [everything[place] for place in places]
    # A partition sits where its card does, also where it does not say so.
    cards = [everything[leads[place]] for place in places] if leads else devices
    pairs = list(zip(devices, cards, strict=True))
    facts = (
        _numbered([_place_fact(_read(device, switch)) or _place_fact(_read(card, switch)) for device, card in pairs]),
        _numbered([_place_fact(_read(device, root)) or _place_fact(_read(card, root)) for device, card in pairs]),
        tuple(_numa_fact(_read(device, numa)) or _numa_fact(_read(card, numa)) for device, card in pairs),
    )
    if matrix is None:
        return _compile(facts, (), 0, ""), None
    rows = _find_rows(matrix, everything, own, pci, leads or tuple(range(len(everything))))
    if isinstance(rows, Misfit):
        return _compile(facts, (), 0, ""), rows.message
    gpus = sum(1 << place for place, device in enumerate(devices) if device.type is DeviceType.GPU)
    return _compile(facts, rows, gpus, matrix.text), None


def _find_rows(
    matrix: MatrixText,
    everything: Sequence[Device],
    own: Sequence[int],
    pci_keys: tuple[str, ...],
    leads: Sequence[int],
) -> tuple[int | None, ...] | Misfit:
    """The matrix row of each of the own devices, None for those of a type that matrices do not print."""
    if not matrix.text.strip():
        return Misfit("the ConfigMap or its key is absent, or the text is empty")
    parsed = _parsed(matrix.text)
    if isinstance(parsed, MatrixError):
        return Misfit(str(parsed))
    printed = [
        place
        for place, device in enumerate(everything)
        if device.type is not DeviceType.OTHER and leads[place] == place
    ]
    with_uuid = needs_uuid(matrix.gpu_ids)
    sightings = [sight(everything[place], pci_keys, with_uuid=with_uuid) for place in printed]
    wanted = list(dict.fromkeys(leads[place] for place in own if everything[place].type is not DeviceType.OTHER))
    found = match_rows(parsed, matrix.gpu_ids, sightings, [printed.index(place) for place in wanted])
    if isinstance(found, Misfit):
        return found
    row_of = dict(zip(wanted, found, strict=True))
    return tuple(row_of.get(leads[place]) for place in own)


@lru_cache(maxsize=MATRICES)
def _parsed(text: str) -> Matrix | MatrixError:
    """The matrix, or why it is none, as a value: a refused text is as much worth keeping as a good one."""
    try:
        return read_topology(text)
    except MatrixError as error:
        return error


@lru_cache(maxsize=SHAPES)
def _compile(facts: tuple[tuple[_Key, ...], ...], rows: tuple[int | None, ...], gpus: int, text: str) -> Wiring:
    """The wiring of one shape: facts in the order of `wiring.FACT_SCOPES`. Without a matrix that is used, no rows.
    `gpus` are the devices that are GPUs."""
    switches, roots, numas = (tuple(map(_fact, keys)) for keys in facts)
    matrix = _parsed(text) if rows else None
    if not isinstance(matrix, Matrix):
        return compile_wiring(Shape((switches, roots, numas)))
    printed = [None if row is None else matrix.numa[row] for row in rows]
    numas = tuple(fact or column for fact, column in zip(numas, printed, strict=True))
    cells = _between(matrix.cells, rows)
    silent = sum(1 << device for device, row in enumerate(rows) if row in matrix.silent)
    ways = _between(matrix.ways, rows) if matrix.ways else ()
    return compile_wiring(Shape((switches, roots, numas), cells, gpus, silent, ways))


def _between(words: Sequence[Sequence[str | None]], rows: Sequence[int | None]) -> tuple[tuple[str | None, ...], ...]:
    """The words between the devices of these rows. Two devices of one row are parts of a card, on one switch port."""
    return tuple(
        tuple(
            None if row is None or column is None else "PIX" if row == column else words[row][column] for column in rows
        )
        for row in rows
    )


def _fact(key: _Key) -> Fact:
    return frozenset((key,)) if isinstance(key, int) else key


def _numbered(places: Sequence[str | int | frozenset[str | int] | None]) -> tuple[_Key, ...]:
    """Names of switches or root complexes replaced by numbers, in order of first appearance.

    Wiring depends on which names are equal and not on how they are spelled, so that nodes which differ in spelling
    share one.
    """
    numbers: dict[str | int, int] = {}
    found: list[_Key] = []
    for place in places:
        if isinstance(place, frozenset):
            found.append(frozenset(numbers.setdefault(name, len(numbers)) for name in sorted(place, key=repr)))
        else:
            found.append(None if place is None else numbers.setdefault(place, len(numbers)))
    return tuple(found)


def _read(device: Device, keys: Iterable[str]) -> AttributeValue | None:
    """The value of the first key that is present."""
    attributes = device.attributes
    for key in keys:
        value = attributes.get(key)
        if value is not None:
            return value
    return None


def _place_fact(value: AttributeValue | None) -> str | int | frozenset[str | int] | None:
    """The name of a switch or root complex; an empty one says nothing, and neither does a value that is no name."""
    if type(value) is str:
        return value or None
    if type(value) is int:
        return value
    if isinstance(value, tuple):
        names = frozenset(name for name in map(_place_fact, value) if isinstance(name, (str, int)))
        return names if len(names) > 1 else next(iter(names), None)
    return None


def _numa_fact(value: AttributeValue | None) -> _Key:
    """A NUMA node; a negative number says nothing, digits in a string are a number."""
    if type(value) is int:
        return value if value >= 0 else None
    if type(value) is str:
        return int(value) if value.isascii() and value.isdigit() and len(value) < 10 else None
    if isinstance(value, tuple):
        nodes = frozenset(node for node in map(_numa_fact, value) if isinstance(node, int))
        return nodes if len(nodes) > 1 else next(iter(nodes), None)
    return None
