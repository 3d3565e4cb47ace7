"""A second allocator, made to be read rather than fast: every node, every set of devices, every pairing.

It reads the rules anew and shares nothing with the real one but the model and the node's wiring tables. Good for about
ten devices. `decide` gives for every lacking replica the node and devices that the rules want, in service order.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import combinations, permutations, product
from typing import Any

from adjoin_allocator import (
    Affinity,
    Claim,
    ClaimUID,
    Device,
    DeviceID,
    DeviceType,
    Node,
    Policy,
    Pool,
    Profile,
    ReplicaState,
    Request,
    Scope,
    Snapshot,
    Standing,
    Strategy,
    natural_key,
)
from adjoin_allocator.selectors import match_all
from adjoin_allocator.topology import Verdict, Wiring, attribute_values, wire

Chosen = tuple[str, tuple[tuple[DeviceID, ...], ...], tuple[str, ...]]
"""Node, the devices of each request in stable order, and by request the name of the alternative, if there are some."""

ISLANDS = (Scope.NVLINK, Scope.PCIE_SWITCH, Scope.PCIE_ROOT, Scope.NUMA_NODE, Scope.NODE)


def decide(snapshot: Snapshot, now: float) -> Mapping[ClaimUID, tuple[Chosen | None, ...]]:
    """By claim what each lacking replica gets, None for those that get nothing."""
    held = {device.id for claim in snapshot.claims for replica in claim.placed for device in replica.devices}
    held |= set(snapshot.holds)
    answers: dict[ClaimUID, tuple[Chosen | None, ...]] = {}
    rooms = Rooms(snapshot)
    everybody: Counter[Wish] = Counter()
    at_first: Counter[Wish] = Counter()
    for claim in snapshot.claims:
        if not claim.deleting and claim.requests:
            everybody[wish(claim)] += claim.replicas
            at_first[wish(claim)] += _lacking(claim)
    waiting = at_first.copy()
    order = sorted(
        snapshot.claims,
        key=lambda claim: (-claim.priority, now if claim.created is None else claim.created, claim.uid),
    )
    for claim in order:
        lacking = _lacking(claim)
        if claim.deleting or not lacking:
            continue
        chosen: list[Chosen | None] = []
        for _ in range(lacking):
            wishes = {
                one: (at_first[one] - mine if waiting[one] > mine else 0, everybody[one] - mine)
                for one in everybody
                for mine in [one == wish(claim)]
            }
            tries = (best_place(snapshot, one, held, wishes, rooms) for one in ways(claim))
            best = next((found for found in tries if found is not None), None)
            chosen.append(None if best is None else best[1])
            if best is not None:
                waiting[wish(claim)] -= 1
                rooms.use(best[1][0], claim)
                held |= {device for devices in best[1][1] for device in devices}
        answers[claim.uid] = tuple(chosen)
    return answers


def _lacking(claim: Claim) -> int:
    return claim.replicas - len({replica.index for replica in claim.placed if replica.index < claim.replicas})


class Rooms:
    """CPU and memory that nodes have left beside devices."""

    def __init__(self, snapshot: Snapshot) -> None:
        self.nodes = snapshot.nodes
        self.used: dict[str, list[int]] = {name: [0, 0] for name in snapshot.nodes}
        for claim in snapshot.claims:
            for replica in claim.placed:
                if not claim.deleting and not replica.bound and replica.state is not ReplicaState.RELEASING:
                    self.use(replica.node, claim)

    def use(self, node: str, claim: Claim) -> None:
        """A replica's pod will need it."""
        self.used[node][0] += claim.host.cpu_milli
        self.used[node][1] += claim.host.memory_bytes

    def suffice(self, name: str, claim: Claim) -> bool:
        """Whether one replica more has room."""
        node, (cpu, memory) = self.nodes[name], self.used[name]
        return all(
            not asked or limit is None or limit - used - taken >= asked
            for limit, used, taken, asked in (
                (node.cpu_milli, node.cpu_used_milli, cpu, claim.host.cpu_milli),
                (node.memory_bytes, node.memory_used_bytes, memory, claim.host.memory_bytes),
            )
        )


def ways(claim: Claim) -> Iterator[Claim]:
    """The claim in all ways in which it may be served, the most wanted first."""
    choices = [request.first_of or (None,) for request in claim.requests]
    for chosen in product(*choices):
        requests = [
            request
            if each is None
            else Request(
                request.name,
                request.kind,
                0 if each.all_devices else each.count,
                each.all_devices,
                each.selectors,
                first_of=(each,),
            )
            for request, each in zip(claim.requests, chosen, strict=True)
        ]
        yield replace(claim, requests=tuple(requests))


Wish = tuple[tuple[Request, ...], tuple[Affinity, ...]]
"""What a replica asks for, with requests called by their number."""
Wishes = Mapping[Wish, tuple[int, int]]
"""How many other replicas waited for what when the decision began, if one still does, and how many want it at all."""


def wish(claim: Claim) -> Wish:
    """What each replica of a claim asks for, in the way that it wants most."""
    claim = next(ways(claim))
    number = {request.name: str(at) for at, request in enumerate(claim.requests)}
    requests = tuple(replace(request, name=number[request.name], first_of=()) for request in claim.requests)
    return requests, tuple(
        replace(line, requests=tuple(number[name] for name in line.requests)) for line in claim.affinity
    )


def best_place(
    snapshot: Snapshot,
    claim: Claim,
    held: Iterable[DeviceID],
    wishes: Wishes | None = None,
    rooms: Rooms | None = None,
) -> tuple[Any, Chosen] | None:
    """The least objective over all nodes, and where; beside what others wish."""
    pool = snapshot.pools[claim.pool]
    found = []
    for name in sorted(snapshot.inventory, key=natural_key):
        if not takes_claims(snapshot.nodes[name], pool) or (rooms and not rooms.suffice(name, claim)):
            continue
        beside = snapshot.inventory[name]
        devices = [device for device in beside if device.device_pool == pool.name]
        if not devices:
            continue
        bench = Bench(pool, devices, wire(devices, pool, beside)[0], set(held))
        bench.everywhere = [
            one for given in snapshot.inventory.values() for one in given if one.device_pool == pool.name
        ]
        bench.wish(wishes or {})
        for sets in bench.choices(claim.requests, claim.affinity):
            place = (natural_key(name), sets)
            called = tuple(request.first_of[0].name if request.first_of else "" for request in claim.requests)
            chosen = (name, tuple(tuple(devices[at].id for at in one) for one in sets), called)
            found.append((bench.objective(claim, sets), bench.load, place, chosen))
    if not found:
        return None
    objective, _, _, chosen = min(found, key=lambda entry: entry[:3])
    return objective, chosen


def takes_claims(node: Node, pool: Pool) -> bool:
    """Whether a node takes anything new."""
    taints = [taint for taint in node.taints if taint.effect in ("NoSchedule", "NoExecute")]
    tolerated = all(any(toleration.tolerates(taint) for toleration in pool.tolerations) for taint in taints)
    return node.exists and not node.deleting and node.ready and not node.unschedulable and tolerated


class Bench:
    """One node with what is free on it."""

    def __init__(self, pool: Pool, devices: Sequence[Device], wiring: Wiring, held: set[DeviceID]) -> None:
        self.pool = pool
        self.devices = devices
        self.wiring = wiring
        self.free = {
            at for at, device in enumerate(devices) if device.standing is Standing.OFFERED and device.id not in held
        }
        self.load = (len(devices) - len(self.free)) / len(devices)
        self.types = {name.name: name.type for name in pool.devices}
        self.groups: list[Group] = []
        self.everywhere = devices
        self.assumed = False

    def wish(self, wishes: Wishes) -> None:
        """Others wish this."""
        self.assumed = any(number for _, number in wishes.values())
        for asked, numbers in wishes.items():
            for rank, number in zip((0, 2), numbers, strict=True):
                if number:
                    self.groups += self._groups(asked, rank, 2 ** (number.bit_length() - 1))

    def _groups(self, asked: Wish, rank: int, weight: int) -> list[Group]:
        """Devices of the empty node that hold places for a wish: all it may have, and by line those that are near."""
        requests, lines = asked
        having = [set(self._eligible(request)) for request in requests]
        counts = [
            len(mine) if request.all_devices else request.count for request, mine in zip(requests, having, strict=True)
        ]
        if not _places(having, counts):
            return []
        found: dict[Any, Group] = {}
        for line in lines:
            members = [int(name) for name in line.requests]
            if line.scope is None and line.policy is Policy.MATCH:
                values = {
                    value
                    for member in members
                    for at in having[member]
                    for value in attribute_values(self.devices[at], self.pool, line.attribute) or ()
                }
                clubs = [
                    {
                        at
                        for at in range(len(self.devices))
                        if value in (attribute_values(self.devices[at], self.pool, line.attribute) or ())
                    }
                    for value in sorted(values, key=str)
                ]
                # Devices that share several values are one club.
                clubs = [set(club) for club in {frozenset(club) for club in clubs}]
                sides = [(sorted(members), [counts[member] for member in sorted(members)], clubs)]
            elif line.scope is None or line.scope is Scope.NODE:
                continue
            elif len(members) == 1:
                clubs = self._clubs(line.scope, having[members[0]], having[members[0]])
                sides = [(members, [counts[members[0]]], clubs)] if counts[members[0]] > 1 else []
            else:
                sides = []
                for other in members[1:]:
                    two = sorted((members[0], other))
                    least = min(counts[member] for member in two)
                    clubs = self._clubs(line.scope, having[two[0]], having[two[1]])
                    sides.append((two, [counts[member] // least for member in two], clubs))
            hard = line.policy is not Policy.PREFERRED
            for who, needed, clubs in sides:
                here = [[having[member] & club for member in who] for club in clubs]
                here = [sets for sets in here if _places(sets, needed)]
                if hard and not here:
                    return []
                at = rank if hard or rank else 1
                for sets, club in zip(here, map(str, here), strict=True):
                    # The same line twice is one line.
                    found[line.scope or line.attribute, tuple(who), hard, club] = (at, weight, sets, needed)
        return [(rank, weight, having, counts), *found.values()]

    def _clubs(self, scope: Scope, left: set[int], right: set[int]) -> list[set[int]]:
        """Who is near one of the other side is in its club."""
        clubs: list[set[int]] = []
        for at in left | right:
            friends = {
                other
                for other in left | right
                if self.wiring.met[scope][at] >> other & 1
                and ((at in left and other in right) or (at in right and other in left))
            }
            joined = [club for club in clubs if club & (friends | {at})]
            clubs = [club for club in clubs if club not in joined]
            clubs.append(set().union({at}, friends, *joined))
        return clubs

    def _eligible(self, request: Request) -> list[int]:
        return [
            at
            for at, device in enumerate(self.devices)
            if device.kind == request.kind and match_all(request.selectors, device).matched
        ]

    def spoiled(self, taken: set[int]) -> tuple[int, ...]:
        """What others lose: needed places, nearness, what is usually asked for."""
        losses = [0, 0, 0]
        for rank, weight, sets, counts in self.groups:
            before = _places([mine & self.free for mine in sets], counts)
            after = _places([mine & self.free - taken for mine in sets], counts)
            losses[rank] += (before - after) * weight * sum(counts)
        if self.assumed:
            for kind in {device.kind for device in self.devices}:
                free = {at for at in self.free if self.devices[at].kind == kind}
                for size in (2, 4, 8, 16):
                    losses[2] += (len(free) // size - len(free - taken) // size) * size
        return tuple(losses)

    def choices(self, requests: Sequence[Request], lines: Sequence[Affinity]) -> Iterator[tuple[tuple[int, ...], ...]]:
        """Disjoint sets of free devices, one a request, that meet every Required line."""

        def pick(place: int, used: frozenset[int]) -> Iterator[tuple[tuple[int, ...], ...]]:
            if place == len(requests):
                yield ()
                return
            request = requests[place]
            eligible = self._eligible(request)
            if request.all_devices:
                whole = eligible and all(at in self.free and at not in used for at in eligible)
                options: Iterable[tuple[int, ...]] = [tuple(eligible)] if whole else []
            else:
                options = combinations([at for at in eligible if at in self.free and at not in used], request.count)
            for option in options:
                for rest in pick(place + 1, used | set(option)):
                    yield (option, *rest)

        for sets in pick(0, frozenset()):
            if all(self.meets(line, requests, sets, lines) for line in lines):
                yield sets

    def meets(
        self, line: Affinity, requests: Sequence[Request], sets: Sequence[Sequence[int]], lines: Sequence[Affinity]
    ) -> bool:
        """Whether the sets meet one line."""
        named = [sets[_place(requests, name)] for name in line.requests]
        together = [at for one in named for at in one]
        if line.scope is None:
            values = [attribute_values(self.devices[at], self.pool, line.attribute) for at in together]
            known = [value for value in values if value is not None]
            if len(known) < len(values):
                return False
            if line.policy is Policy.MATCH:
                return bool(frozenset.intersection(*known))
            return all(not one & other for one, other in combinations(known, 2))
        if line.policy is not Policy.REQUIRED:
            return True
        if len(named) == 1:
            return self.wiring.set_verdict(line.scope, sum(1 << at for at in together)) is Verdict.MET
        first, *others = line.requests
        return all(self.pairing(requests, sets, (first,), (other,), lines) is not None for other in others)

    def pairing(
        self,
        requests: Sequence[Request],
        sets: Sequence[Sequence[int]],
        left: Sequence[str],
        right: Sequence[str],
        lines: Sequence[Affinity],
    ) -> tuple[int, int] | None:
        """The least (sum of ranks, sum of fine) over all ways to pair the sides evenly, with pairs of two requests only
        as the Required lines over these two allow; None when there is no way.
        """
        scopes = [
            line.scope
            for line in lines
            if line.scope is not None
            and line.policy is Policy.REQUIRED
            and len(left) == len(right) == 1
            and line.requests[0] in (left[0], right[0])
            and {left[0], right[0]} <= set(line.requests)
        ]
        ones, others = ([at for name in side for at in sets[_place(requests, name)]] for side in (left, right))
        small, large = sorted((ones, others), key=len)
        best: tuple[int, int] | None = None
        for partners in _spread(small, len(large)):
            pairs = list(zip(large, partners, strict=True))
            if all(self.wiring.met[scope][one] >> other & 1 for scope in scopes for one, other in pairs):
                cost = self.distance(pairs)
                if best is None or cost < best:
                    best = cost
        return best

    def distance(self, pairs: Iterable[tuple[int, int]]) -> tuple[int, int]:
        """Sums of ranks and of fine."""
        pairs = list(pairs)
        return sum(self.wiring.rank[a][b] for a, b in pairs), sum(self.wiring.fine[a][b] for a, b in pairs)

    def objective(self, claim: Claim, sets: Sequence[Sequence[int]]) -> tuple[Any, ...]:
        """The objective of semantics §1.11 for one choice, smaller is better."""
        taken = {at for one in sets for at in one}
        found = [*self._distances(claim, sets)]
        if claim.profile is Profile.LATENCY:
            found = [self._numa_nodes(taken), self._busy(taken), *found]
        waste = self._waste(claim.requests, sets)
        if claim.profile is Profile.COMPUTE:
            found.append(waste)
        if self.pool.strategy is Strategy.PACK:
            found.append(-self.load)
        if self.pool.strategy is Strategy.SPREAD:
            found += [self.load, sum(self._crowd(at) for at in taken)]
        found += [*self.spoiled(taken), *self._broken(taken), *self._blocks(taken)]
        return (*found, waste, -sum(self.devices[at].priority for at in taken))

    def _waste(self, requests: Sequence[Request], sets: Sequence[Sequence[int]]) -> int:
        """Performance above the least in the pool that satisfies each request."""
        waste = 0
        for request, given in zip(requests, sets, strict=True):
            fitting = [
                device.performance
                for device in self.everywhere
                if device.kind == request.kind and match_all(request.selectors, device).matched
            ]
            waste += sum(self.devices[at].performance - min(fitting) for at in given)
        return waste

    def _numa_group(self, at: int) -> frozenset[int]:
        """Who is on the device's NUMA node with it; of a device without one, who has none either."""
        everybody = range(self.wiring.size)
        if self._placeless(at):
            return frozenset(other for other in everybody if self._placeless(other))
        for island in self.wiring.islands[Scope.NUMA_NODE]:
            if island >> at & 1:
                return frozenset(other for other in everybody if island >> other & 1)
        return frozenset({at})

    def _placeless(self, at: int) -> bool:
        in_one = any(island >> at & 1 for island in self.wiring.islands[Scope.NUMA_NODE])
        return self.wiring.numa[at] is None and not in_one

    def _numa_nodes(self, taken: set[int]) -> int:
        known = {self._numa_group(at) for at in taken if not self._placeless(at)}
        return len(known) + sum(self._placeless(at) for at in taken)

    def _busy(self, taken: set[int]) -> int:
        return len({other for at in taken for other in self._numa_group(at)} - self.free)

    def _crowd(self, at: int) -> int:
        """How full the device's NUMA node is, in whole millionths."""
        group = self._numa_group(at)
        return len(group - self.free) * 1_000_000 // len(group)

    def _distances(self, claim: Claim, sets: Sequence[Sequence[int]]) -> Iterator[tuple[int, int]]:
        requests, lines = claim.requests, claim.affinity
        preferred = [line for line in lines if line.scope is not None and line.policy is Policy.PREFERRED]
        for line in preferred:
            if len(line.requests) == 1:
                yield self.distance(combinations(sets[_place(requests, line.requests[0])], 2))
                continue
            first, *others = line.requests
            sums = [self.pairing(requests, sets, (first,), (other,), lines) or (0, 0) for other in others]
            yield sum(rank for rank, _ in sums), sum(fine for _, fine in sums)
        if preferred:
            return
        gpus = [request.name for request in requests if self.types[request.kind] is DeviceType.GPU]
        nics = [request.name for request in requests if self.types[request.kind] is DeviceType.RDMA]
        within = self.distance(combinations([at for name in gpus for at in sets[_place(requests, name)]], 2))
        across = (self.pairing(requests, sets, gpus, nics, lines) or (0, 0)) if gpus and nics else (0, 0)
        yield from (across, within) if claim.profile is Profile.IO else (within, across)

    def _broken(self, taken: set[int]) -> Iterator[int]:
        for scope in ISLANDS:
            lost = 0
            for island in self.wiring.islands[scope]:
                members = {at for at in range(self.wiring.size) if island >> at & 1}
                if members <= self.free and members & taken:
                    lost += len(members)
            yield lost

    def _blocks(self, taken: set[int]) -> Iterator[int]:
        for power in range(10, 0, -1):
            lost = 0
            for kind in {device.kind for device in self.devices}:
                free = {at for at in self.free if self.devices[at].kind == kind}
                lost += (len(free) >> power) - (len(free - taken) >> power)
            yield lost


Group = tuple[int, int, list[set[int]], list[int]]
"""How much it matters, for how many, devices by request and how many of them one place takes."""


def _places(sets: Sequence[set[int]], counts: Sequence[int]) -> int:
    return min(len(mine) // count if count else 0 for mine, count in zip(sets, counts, strict=True))


def _place(requests: Sequence[Request], name: str) -> int:
    return [request.name for request in requests].index(name)


def _spread(small: Sequence[int], partners: int) -> Iterator[tuple[int, ...]]:
    """All ways to give each of `partners` one of `small`, each of these used floor or ceiling of the ratio times."""
    if not small or not partners:
        yield ()
        return
    floor, extra = divmod(partners, len(small))
    for favoured in combinations(small, extra):
        slots = [one for one in small for _ in range(floor + (one in favoured))]
        yield from set(permutations(slots)) if len(set(slots)) < len(slots) else permutations(slots)
