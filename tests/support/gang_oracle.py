"""How a gang should be spread, by trying everything: made to be read rather than fast, for a handful of nodes.

In come each node's label values (coarse to fine, up to the first it lacks), how many more members it holds and how many
of the gang are there already; out comes what a best spread reaches. It shares nothing with the solver but the rules.
`whole_gang` does the same for a claim, down to its devices.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import combinations, product
from math import ceil

from tests.support.oracle import Bench, takes_claims

from adjoin_allocator import Claim, Device, Policy, Pool, Snapshot, natural_key
from adjoin_allocator.topology import attribute_values, wire


@dataclass(frozen=True)
class Case:
    """A fabric with a wish. Levels are numbers, coarse to fine; -1 is none."""

    paths: tuple[tuple[str, ...], ...]
    levels: int
    rooms: tuple[int, ...]
    held: tuple[int, ...]
    number: int
    least: int
    required: int = -1
    preferred: int = -1
    size: int = 0
    segment_level: int = -1

    @property
    def segmented(self) -> bool:
        """Segments that a required level does not already keep together."""
        return bool(self.size) and self.segment_level > self.required

    def domain(self, node: int, level: int) -> object:
        """The domain of a node at a level; None for none. Level -1 is everything, beyond the last each node is one."""
        if level == -1:
            return ()
        if level == self.levels:
            return node
        path = self.paths[node]
        return path[: level + 1] if len(path) > level else None


@dataclass(frozen=True)
class Best:
    """What a best spread reaches. `below` counts, level by level, domains used and what is left in them."""

    members: int
    level: int
    preferred: int
    left: int
    below: tuple[int, ...]


def spreads(case: Case) -> Iterator[tuple[int, ...]]:
    """All ways that the wish allows, by node how many go there."""
    for counts in product(*(range(room + 1) for room in case.rooms)):
        if max(1, case.least) <= sum(counts) <= case.number and allowed(case, counts):
            yield counts


def allowed(case: Case, counts: Sequence[int]) -> bool:
    """Whether required level and segments are kept."""
    new = [node for node, count in enumerate(counts) if count]
    everywhere = [node for node in range(len(counts)) if counts[node] or case.held[node]]
    domains = {case.domain(node, case.required) for node in everywhere}
    if case.required >= 0 and (len(domains) > 1 or None in domains):
        return False
    if not case.segmented:
        return True
    totals: dict[object, int] = {}
    for node in new:
        domain = case.domain(node, case.segment_level)
        if domain is None:
            return False
        totals[domain] = totals.get(domain, 0) + counts[node]
    fulls, tail = divmod(case.number, case.size)
    hosts = [None, *totals] if tail else [None]
    return any(
        sum(ceil(max(0, total - (tail if domain is host else 0)) / case.size) for domain, total in totals.items())
        <= fulls
        for host in hosts
    )


def reach(case: Case, counts: Sequence[int]) -> Best:
    """What one way reaches."""
    everywhere = [node for node in range(len(counts)) if counts[node] or case.held[node]]
    level = next(
        level
        for level in range(case.levels, -2, -1)
        for domains in [{case.domain(node, level) for node in everywhere}]
        if len(domains) == 1 and None not in domains
    )
    home = case.domain(everywhere[0], level)
    mine = [node for node in range(len(counts)) if case.domain(node, level) == home]

    def places(at: int) -> dict[object, list[int]]:
        """Domains of a level; a node in none is one of its own."""
        found: dict[object, list[int]] = {}
        for node in mine:
            domain = case.domain(node, at)
            found.setdefault(("node", node) if domain is None else domain, []).append(node)
        return found

    def used(at: int) -> int:
        return sum(
            any(counts[node] for node in nodes) and not any(case.held[node] for node in nodes)
            for nodes in places(at).values()
        )

    def left(at: int) -> int:
        return sum(
            sum(case.rooms[node] - counts[node] for node in nodes)
            for nodes in places(at).values()
            if any(counts[node] or case.held[node] for node in nodes)
        )

    return Best(
        members=sum(counts),
        level=level,
        preferred=used(case.preferred) if level < case.preferred else 0,
        left=sum(case.rooms[node] - counts[node] for node in mine),
        below=tuple(number for at in range(level + 1, case.levels + 1) for number in (used(at), left(at))),
    )


def best(case: Case) -> Best | None:
    """The best that any way reaches, or None when the wish cannot be met."""
    found = [reach(case, counts) for counts in spreads(case)]
    if not found:
        return None
    return min(found, key=lambda one: (-one.members, -one.level, one.preferred, one.left, one.below))


def case_of(snapshot: Snapshot, claim: Claim, names: Sequence[str], rooms: Sequence[int]) -> Case:
    """A claim of which nothing is placed yet, on nodes of these names that hold so many members."""
    pool = snapshot.pools[claim.pool]
    levels = [level.node_label for level in pool.fabric]
    paths = []
    for name in names:
        values = [snapshot.nodes[name].labels.get(label) for label in levels]
        known = values.index(None) if None in values else len(values)
        paths.append(tuple(value for value in values[:known] if value is not None))
    place = {level.name: at for at, level in enumerate(pool.fabric)}
    segment = claim.fabric.segment
    return Case(
        paths=tuple(paths),
        levels=len(levels),
        rooms=tuple(rooms),
        held=(0,) * len(names),
        number=claim.replicas,
        least=claim.gang_min or 1,
        required=place.get(claim.fabric.required, -1),
        preferred=place.get(claim.fabric.preferred, -1),
        size=segment.size if segment else 0,
        segment_level=place[segment.level] if segment else -1,
    )


def level_of(snapshot: Snapshot, pool: Pool, nodes: Sequence[str]) -> int:
    """The finest level in one domain of which all of these lie; beyond the last is a node, -1 none."""
    if len(set(nodes)) == 1:
        return len(pool.fabric)
    labels = [level.node_label for level in pool.fabric]
    paths = {tuple(snapshot.nodes[node].labels.get(label) for label in labels) for node in nodes}
    same = [at for at in range(len(labels)) if len({path[: at + 1] for path in paths}) == 1]
    return max((at for at in same if None not in next(iter(paths))[: at + 1]), default=-1)


def whole_gang(snapshot: Snapshot, claim: Claim) -> Best | None:
    """The best that a gang of which nothing is placed yet can reach: every node, every set of devices, every way to
    put members together. `left` and `below` count by what nodes hold beside lines over the gang.
    """
    pool = snapshot.pools[claim.pool]
    names = sorted(snapshot.inventory, key=natural_key)
    single = [replace(line, over_gang=False) for line in claim.affinity]
    held = {device.id for other in snapshot.claims for replica in other.placed for device in replica.devices}
    fillings: list[list[tuple[tuple[frozenset[object], ...], ...]]] = []
    for name in names:
        devices = [device for device in snapshot.inventory[name] if device.device_pool == pool.name]
        bench = Bench(pool, devices, wire(devices, pool, snapshot.inventory[name])[0], held | set(snapshot.holds))
        choices = list(bench.choices(claim.requests, single)) if takes_claims(snapshot.nodes[name], pool) else []
        fillings.append(list(_fillings(claim, pool, devices, choices)))
    case = case_of(snapshot, claim, names, [max(map(len, here)) for here in fillings])
    found = []
    for filled in product(*fillings):
        members = [member for here in filled for member in here]
        counts = [len(here) for here in filled]
        if max(1, case.least) <= len(members) <= case.number and allowed(case, counts) and _agree(claim, members):
            found.append(reach(case, counts))
    return min(found, key=lambda one: (-one.members, -one.level, one.preferred, one.left, one.below), default=None)


def _fillings(
    claim: Claim, pool: Pool, devices: Sequence[Device], choices: Sequence[Sequence[Sequence[int]]]
) -> Iterator[tuple[tuple[frozenset[object], ...], ...]]:
    """All ways to put members on a node; of each member, per line over the gang, the values of its devices. Ways that
    are the same in that are one.
    """
    lines = [line for line in claim.affinity if line.over_gang]
    names = [request.name for request in claim.requests]
    seen = set()

    def values(sets: Sequence[Sequence[int]]) -> tuple[frozenset[object], ...]:
        found = []
        for line in lines:
            mine = [
                attribute_values(devices[at], pool, line.attribute) or frozenset()
                for name in line.requests
                for at in sets[names.index(name)]
            ]
            join = frozenset.intersection if line.policy is Policy.MATCH else frozenset.union
            found.append(join(*mine))
        return tuple(found)

    def fill(first: int, used: frozenset[int], members: tuple[tuple[frozenset[object], ...], ...]) -> None:
        seen.add(tuple(sorted(members, key=str)))
        for at in range(first, len(choices)):
            taken = {device for one in choices[at] for device in one}
            if not taken & used and len(members) < claim.replicas:
                fill(at + 1, used | taken, (*members, values(choices[at])))

    fill(0, frozenset(), ())
    yield from sorted(seen, key=str)


def _agree(claim: Claim, members: Sequence[Sequence[frozenset[object]]]) -> bool:
    """Whether members meet the lines over the gang."""
    for at, line in enumerate(line for line in claim.affinity if line.over_gang):
        sets = [member[at] for member in members]
        if line.policy is Policy.MATCH and not frozenset.intersection(*sets):
            return False
        if line.policy is Policy.DISTINCT and any(one & other for one, other in combinations(sets, 2)):
            return False
    return True
