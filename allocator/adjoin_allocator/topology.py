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
from adjoin_allocator.matrix import Matrix, MatrixError, parse_matrix
from adjoin_allocator.model import Device, DeviceID, DeviceType, MatrixText, Pool, Scope
from adjoin_allocator.results import Mismatch
from adjoin_allocator.rows import Misfit, Sighting, match_rows, needs_uuid, sight
from adjoin_allocator.wiring import LEVELS, Fact, Shape, Verdict, Wiring, bits, compile_wiring

__all__ = ["Verdict", "Wiring", "attribute_keys", "attribute_values", "bits", "graph", "wire"]

DEFAULT_KEYS: Mapping[str, tuple[str, ...]] = {
    "pcieRoot": ("resource.kubernetes.io/pcieRoot",),
    "numaNode": ("resource.kubernetes.io/numaNode", "dra.net/numaNode"),
    "pciBusID": ("resource.kubernetes.io/pciBusID", "dra.net/pciAddress"),
}
STATIC_DOMAIN = "adjoin.dev"

SHAPES = 1024
"""How many compiled wirings are kept; a cluster has a few dozen shapes."""
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
    keys = [attribute_keys(pool, name) for name in ("pcieSwitch", "pcieRoot", "numaNode")]
    switches, roots = _numbered(devices, keys[0]), _numbered(devices, keys[1])
    numas = tuple(_numa_fact(_read(device, keys[2])) for device in devices)
    matrix = pool.matrices.get(devices[0].node) if devices else None
    if matrix is None:
        return _compile(switches, roots, numas, (), ""), None
    rows = _find_rows(devices, pool, beside, matrix)
    if isinstance(rows, Misfit):
        mismatch = Mismatch(devices[0].node, matrix.source, rows.message)
        return _compile(switches, roots, numas, (), ""), mismatch
    return _compile(switches, roots, numas, rows, matrix.text), None


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


# A fact as it stands in the key of a compiled wiring: cheap to make, hashable, equal exactly when the fact is.
_Key = int | frozenset[int] | None


def _find_rows(
    devices: Sequence[Device], pool: Pool, beside: Sequence[Device], matrix: MatrixText
) -> tuple[int | None, ...] | Misfit:
    """The matrix row of each of `devices`, None for those of a type that matrices do not print."""
    if not matrix.text.strip():
        return Misfit("the ConfigMap or its key is absent, or the text is empty")
    keys = attribute_keys(pool, "pciBusID")
    with_uuid = needs_uuid(matrix.gpu_ids)
    sightings: list[Sighting] = []
    place: dict[DeviceID, int] = {}
    for device in (*beside, *devices):
        if device.type is not DeviceType.OTHER and device.id not in place:
            place[device.id] = len(sightings)
            sightings.append(sight(device, keys, with_uuid=with_uuid))
    places = [place.get(device.id) for device in devices]
    own = tuple(index for index in places if index is not None)
    found = _match(matrix.text, matrix.gpu_ids, tuple(sightings), own)
    if isinstance(found, Misfit):
        return found
    rows = iter(found)
    return tuple(None if index is None else next(rows) for index in places)


@lru_cache(maxsize=SHAPES)
def _match(
    text: str, gpu_ids: tuple[str, ...], sightings: tuple[Sighting, ...], own: tuple[int, ...]
) -> tuple[int, ...] | Misfit:
    matrix = _parsed(text)
    if isinstance(matrix, MatrixError):
        return Misfit(str(matrix))
    return match_rows(matrix, gpu_ids, sightings, own)


@lru_cache(maxsize=MATRICES)
def _parsed(text: str) -> Matrix | MatrixError:
    """The matrix, or why it is none, as a value: a refused text is as much worth keeping as a good one."""
    try:
        return parse_matrix(text)
    except MatrixError as error:
        return error


@lru_cache(maxsize=SHAPES)
def _compile(
    switches: tuple[_Key, ...],
    roots: tuple[_Key, ...],
    numas: tuple[_Key, ...],
    rows: tuple[int | None, ...],
    text: str,
) -> Wiring:
    """The wiring of one shape. Without a matrix that is used, `rows` is empty."""
    facts = [tuple(map(_fact, keys)) for keys in (switches, roots, numas)]
    matrix = _parsed(text) if rows else None
    if not isinstance(matrix, Matrix):
        return compile_wiring(Shape(tuple(facts)))
    printed = [None if row is None else matrix.numa[row] for row in rows]
    facts[2] = tuple(fact or column for fact, column in zip(facts[2], printed, strict=True))
    cells = tuple(
        tuple(None if row is None or column is None else matrix.cells[row][column] for column in rows) for row in rows
    )
    gpus = sum(1 << device for device, row in enumerate(rows) if row is not None and row < len(matrix.gpus))
    return compile_wiring(Shape(tuple(facts), cells, gpus))


def _fact(key: _Key) -> Fact:
    return frozenset((key,)) if isinstance(key, int) else key


def _numbered(devices: Sequence[Device], keys: tuple[str, ...]) -> tuple[_Key, ...]:
    """Each device's switch or root complex, names replaced by numbers in order of first appearance.

    Wiring depends on which names are equal and not on how they are spelled, so that nodes which differ in spelling
    share one.
    """
    numbers: dict[str | int, int] = {}
    found: list[_Key] = []
    for device in devices:
        place = _place_fact(_read(device, keys))
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
