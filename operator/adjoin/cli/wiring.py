"""One node's wiring and who has its devices, as a value that can be shown.

In come a snapshot and the name of a node, out goes a `NodeWiring`: per pool a tree of parts with devices at its ends,
and the NVLink groups across it. The distances are the allocator's own, and so are the counts that the states add up to.

Nothing here decides or prints.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import networkx as nx

from adjoin.cli.held import part_words
from adjoin.lifecycle import share_entry
from adjoin_allocator.ledger import Ledger
from adjoin_allocator.model import Device, DeviceID, Node, Pool
from adjoin_allocator.pci import pci_address, spelling
from adjoin_allocator.sharers import SharedDevice, shared_devices
from adjoin_allocator.snapshot import Snapshot
from adjoin_allocator.solve import Memo
from adjoin_allocator.terms import DeviceState, Scope
from adjoin_allocator.topology import attribute_keys, attribute_values, bits, graph, wire
from adjoin_allocator.wiring import MOST_LINKS, Wiring

Json = dict[str, Any]

NAMED = 3
"""So many holders of parts of one device are named."""


@dataclass(frozen=True, slots=True, eq=False)
class Leaf:
    """A device at the end of a branch.

    Attributes:
        device: What it is.
        level: How near it sits to the others on its branch, in the words of `nvidia-smi topo`.
        state: How it counts.
        holder: Who has it (`namespace/name replica 0`), or parts of it (`namespace/name replica 0 (2 slots)`), or "".
        detail: Why it cannot be given out, or "".
        address: Its PCI address, or "".
        group: Name of the NVLink group that it is in, or "".
        shared: Who has parts of it, or None.
    """

    device: Device
    level: str
    state: DeviceState
    holder: str
    detail: str
    address: str
    group: str
    shared: SharedDevice | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Branch:
    """The host, a NUMA node, a root complex or a switch, with what is known to share it."""

    scope: Scope
    name: str
    parts: tuple[Branch, ...]
    leaves: tuple[Leaf, ...]

    def all_leaves(self) -> Iterator[Leaf]:
        """Every device on it, in order."""
        yield from self.leaves
        for part in self.parts:
            yield from part.all_leaves()

    def chain(self) -> list[Branch]:
        """It and those in it that hold the very same devices, the outermost first: nothing is learnt from a box in a
        box."""
        found = [self]
        while not found[-1].leaves and len(found[-1].parts) == 1:
            found.append(found[-1].parts[0])
        return found


@dataclass(frozen=True, slots=True, eq=False)
class LinkGroup:
    """GPUs that NVLinks join.

    Attributes:
        name: What it is called (`NVLink A`).
        devices: They, in order.
        links: Number of links of each pair that has any.
    """

    name: str
    devices: tuple[DeviceID, ...]
    links: Mapping[tuple[DeviceID, DeviceID], int]

    @property
    def pairs(self) -> int:
        """How many pairs of devices there are."""
        return len(self.devices) * (len(self.devices) - 1) // 2

    @property
    def alike(self) -> bool:
        """Whether any two are joined, and by the same number of links."""
        return len(self.links) == self.pairs and len(set(self.links.values())) == 1

    def partners(self, device: DeviceID) -> Iterator[tuple[DeviceID, int]]:
        """The devices that one of them is joined to, each with the number of links."""
        for (one, other), links in self.links.items():
            if device in (one, other):
                yield (other if device == one else one), links

    def summary(self) -> str:
        """How its devices are joined, in words."""
        low, high = min(self.links.values()), max(self.links.values())
        counts = f"{low} link{'' if high == 1 else 's'}" if low == high else f"{low} to {high} links"
        if len(self.links) == self.pairs:
            return f"{counts} between any two" if self.pairs > 1 else counts
        return f"{len(self.links)} of {self.pairs} pairs joined, {counts} each"


@dataclass(frozen=True, slots=True, eq=False)
class PoolWiring:
    """The devices of one pool on the node.

    Attributes:
        pool: Name of the DevicePool.
        source: ConfigMap and key of the text that tells the wiring, or "" where attributes alone do.
        problem: Why that text is not used, or "".
        host: The tree.
        groups: NVLink groups across it.
        devices: They in the order of `levels`.
        levels: How near every pair is.
    """

    pool: str
    source: str
    problem: str
    host: Branch
    groups: tuple[LinkGroup, ...]
    devices: tuple[DeviceID, ...]
    levels: tuple[tuple[str, ...], ...]


@dataclass(frozen=True, slots=True, eq=False)
class NodeWiring:
    """A node, by pool. `notes` say why it takes nothing new, if so."""

    node: str
    notes: tuple[str, ...]
    pools: tuple[PoolWiring, ...]


def node_wiring(snapshot: Snapshot, node: str, now: float) -> NodeWiring:
    """The wiring of a node; without pools where none has a device there."""
    beside = snapshot.inventory.get(node, ())
    ledger = Memo().ledger
    ledger.enter(snapshot, now)
    found = snapshot.nodes.get(node)
    return NodeWiring(
        node=node,
        notes=_notes(found) if found is not None else (),
        pools=tuple(
            _pool_wiring(
                snapshot.pools[name],
                [each for each in beside if each.device_pool == name],
                beside,
                _uses(ledger, name, node),
            )
            for name in dict.fromkeys(device.device_pool for device in beside)
        ),
    )


def _notes(node: Node) -> tuple[str, ...]:
    notes = {
        "there is no Node object": not node.exists,
        "the node is not ready": not node.ready,
        "the node is cordoned": node.unschedulable,
        "the node is being deleted": node.deleting,
    }
    return tuple(note for note, holds in notes.items() if holds)


@dataclass(frozen=True, slots=True)
class _Use:
    state: DeviceState
    holder: str
    shared: SharedDevice | None


def _uses(ledger: Ledger, pool: str, node: str) -> Mapping[DeviceID, _Use]:
    """How each device of a pool on a node counts, and who has it."""
    mine = ledger.pools[pool]
    position = mine.index.position[node]
    view = mine.index.views[position]
    holders: dict[int, list[str]] = {}
    for claim, replica, mask in ledger.users(pool, position):
        who = f"{claim.namespace}/{claim.name} replica {replica.index}"
        shares = {view.bit[each.id]: each.share for each in replica.devices if each.id in view.bit}
        for bit in bits(mask):
            share = shares.get(bit)
            holders.setdefault(bit, []).append(who if share is None else f"{who} ({part_words(share_entry(share))})")
    names = {bit: _listed(found) for bit, found in holders.items()}
    shared = shared_devices(ledger, pool, position)
    uses = {}
    for device, bit in view.bit.items():
        hold = ledger.holds.get(device)
        name = names.get(bit, hold.holder if hold is not None else "")
        uses[device] = _Use(mine.state(position, bit), name, shared.get(device))
    return uses


def _listed(holders: Sequence[str]) -> str:
    """Who has a device, or parts of it."""
    more = len(holders) - NAMED
    return ", ".join(holders[:NAMED]) + (f" and {more} more" if more > 0 else "")


def _pool_wiring(
    pool: Pool, devices: Sequence[Device], beside: Sequence[Device], uses: Mapping[DeviceID, _Use]
) -> PoolWiring:
    wiring, mismatch = wire(devices, pool, beside)
    net = graph(devices, wiring)
    groups = _groups(devices, wiring, net)
    text = pool.matrices.get(devices[0].node)
    return PoolWiring(
        pool=pool.name,
        source=text.source if text is not None else "",
        problem=mismatch.message if mismatch is not None else "",
        host=_Tree(pool, devices, wiring, net, groups, uses).host(),
        groups=tuple(groups),
        devices=tuple(device.id for device in devices),
        levels=wiring.level,
    )


def _groups(devices: Sequence[Device], wiring: Wiring, net: nx.Graph[Hashable]) -> list[LinkGroup]:
    places = {device.id: place for place, device in enumerate(devices)}
    links: nx.Graph[int] = nx.Graph()
    for one, other, data in net.edges(data=True):
        if data["level"] == "NVLink":
            assert isinstance(one, tuple)
            assert isinstance(other, tuple)
            links.add_edge(places[one[1]], places[other[1]])
    groups = []
    for number, members in enumerate(sorted(map(sorted, nx.connected_components(links)))):
        pairs = {
            (devices[one].id, devices[other].id): MOST_LINKS - wiring.fine[one][other]
            for one, other in sorted((min(edge), max(edge)) for edge in links.subgraph(members).edges)
        }
        groups.append(LinkGroup(_group_name(number), tuple(devices[place].id for place in members), pairs))
    return groups


def _group_name(number: int) -> str:
    """A, B, … Z, A1, …"""
    letter, turn = chr(ord("A") + number % 26), number // 26
    return f"NVLink {letter}{turn or ''}"


class _Tree:
    """Turns the graph of a node into branches."""

    def __init__(
        self,
        pool: Pool,
        devices: Sequence[Device],
        wiring: Wiring,
        net: nx.Graph[Hashable],
        groups: Sequence[LinkGroup],
        uses: Mapping[DeviceID, _Use],
    ) -> None:
        self._pool = pool
        self._places = {device.id: place for place, device in enumerate(devices)}
        self._devices = devices
        self._wiring = wiring
        self._net = net
        self._group_of = {device: group.name for group in groups for device in group.devices}
        self._uses = uses

    def host(self) -> Branch:
        """The whole tree."""
        return self._branch(("host", self._devices[0].node), Scope.NODE, None)

    def _branch(self, vertex: Hashable, scope: Scope, above: Hashable) -> Branch:
        parts: list[Branch] = []
        leaves: list[Leaf] = []
        for below, data in self._net.adj[vertex].items():
            if below == above:
                continue
            assert isinstance(below, tuple)
            kind, what = below
            if kind == "device":
                leaves.append(self._leaf(self._devices[self._places[what]], data["level"]))
            else:
                parts.append(self._branch(below, kind, vertex))
        found = Branch(scope, "", tuple(parts), tuple(leaves))
        return Branch(scope, self._name(scope, vertex, found), found.parts, found.leaves)

    def _name(self, scope: Scope, vertex: Hashable, branch: Branch) -> str:
        """What the devices say that they share, else a number."""
        assert isinstance(vertex, tuple)
        if scope is Scope.NODE:
            return str(vertex[1])
        members = [leaf.device for leaf in branch.all_leaves()]
        if scope is Scope.NUMA_NODE:
            said: list[frozenset[Any] | None] = [self._wiring.numa[self._places[device.id]] for device in members]
        else:
            alias = "pcieRoot" if scope is Scope.PCIE_ROOT else "pcieSwitch"
            said = [attribute_values(device, self._pool, alias) for device in members]
        known = [values for values in said if values is not None]
        shared = frozenset.intersection(*known) if known else frozenset()
        return ",".join(sorted(map(str, shared))) if shared else f"#{vertex[1]}"

    def _leaf(self, device: Device, level: str) -> Leaf:
        use = self._uses[device.id]
        keys = attribute_keys(self._pool, "pciBusID")
        texts = (device.attributes.get(key) for key in keys)
        address = pci_address(next((text for text in texts if isinstance(text, str)), "") or device.hardware_id)
        return Leaf(
            device=device,
            level=level,
            state=use.state,
            holder=use.holder,
            detail=device.standing_detail,
            address=spelling(address) if address else "",
            group=self._group_of.get(device.id, ""),
            shared=use.shared,
        )


_WORDS = {Scope.NUMA_NODE: "NUMA node", Scope.PCIE_ROOT: "root complex", Scope.PCIE_SWITCH: "switch"}


def title(branches: Sequence[Branch]) -> str:
    """What a chain of parts is called."""
    return " / ".join(f"{_WORDS[branch.scope]} {branch.name}" for branch in branches)


# As JSON.


def as_json(wiring: NodeWiring) -> Json:
    """The object that is printed."""
    return {
        "node": wiring.node,
        "notes": list(wiring.notes),
        "pools": [
            {
                "pool": pool.pool,
                "topology": {"source": pool.source or None, "used": bool(pool.source) and not pool.problem},
                "problem": pool.problem or None,
                "tree": _branch_json(pool.host),
                "nvlink": [
                    {
                        "name": group.name,
                        "devices": [_id_json(device) for device in group.devices],
                        "pairs": [
                            {"devices": [_id_json(device) for device in pair], "links": links}
                            for pair, links in group.links.items()
                        ],
                    }
                    for group in pool.groups
                ],
                "levels": {
                    "devices": [_id_json(device) for device in pool.devices],
                    "rows": [list(row) for row in pool.levels],
                },
            }
            for pool in wiring.pools
        ],
    }


def _branch_json(branch: Branch) -> Json:
    return {
        "scope": branch.scope.value,
        "name": branch.name,
        "devices": [_leaf_json(leaf) for leaf in branch.leaves],
        "parts": [_branch_json(part) for part in branch.parts],
    }


def _leaf_json(leaf: Leaf) -> Json:
    device = leaf.device
    return {
        **_id_json(device.id),
        "id": device.hardware_id,
        "name": device.kind,
        "type": device.type.value,
        "address": leaf.address or None,
        "level": leaf.level,
        "state": leaf.state.value,
        "holder": leaf.holder or None,
        "detail": leaf.detail or None,
        "nvlink": leaf.group or None,
        "parts": [
            {
                "claim": f"{each.claim.namespace}/{each.claim.name}",
                "replica": each.index,
                "profile": each.claim.profile.value,
                "share": share_entry(each.share),
                "count": each.times,
                "releasing": each.back,
            }
            for each in (leaf.shared.sharers if leaf.shared is not None else ())
        ],
        "left": (leaf.shared.left or None) if leaf.shared is not None else None,
        "neighbours": by_profile(leaf.shared) if leaf.shared is not None else {},
    }


def by_profile(shared: SharedDevice) -> Json:
    """How many replicas share a device, by the profile of their claims."""
    return {profile.value: count for profile, count in shared.neighbours().items()}


def part_lines(leaf: Leaf) -> list[tuple[str, str, bool]]:
    """Of a divided device each part: whose it is, what it is, and whether it is on its way back."""
    if leaf.shared is None:
        return []
    return [
        (
            f"{each.claim.namespace}/{each.claim.name} replica {each.index}",
            f"{part_words(share_entry(each.share))}{f' x{each.times}' if each.times > 1 else ''}",
            each.back,
        )
        for each in leaf.shared.sharers
    ]


def sharing_line(leaf: Leaf) -> str:
    """Of a divided device how many share it, by profile, and what is left; "" of others."""
    if leaf.shared is None:
        return ""
    profiles = ", ".join(f"{count} {profile}" for profile, count in by_profile(leaf.shared).items())
    return f"shared by {profiles}" + (f"; {leaf.shared.left} left" if leaf.shared.left else "")


def _id_json(device: DeviceID) -> Json:
    return {"driver": device.driver, "pool": device.pool, "device": device.device}
