"""Many replicas over the fabric: where all members of a claim go, chosen together.

In come a claim's asks, its missing members and those in place, the pool's fabric tree, a placer and what others want;
out comes an `Outcome`: `Member`s, or how many could be had and where. Nothing is taken here; members see each
other's choices because they are chosen together.

1. Of several ways to serve a member (`firstOf`) the best serves as many as can be without any member less, then the
   second, and so on (`preferring`).
2. How many members each state of nodes holds (`seats`), for each value that members may have to share (`over: Gang`).
3. Where no two members may share a value, they are placed by `apart`.
4. Missing members of segments that have members in place join them.
5. All others are spread over the tree (`spread`): the most members, then the smallest domain, then the least left over.
6. Among equal layouts, and among nodes that hold as many, the objective of the choice in the node decides, then the
   less loaded node, then stable order.
7. Indexes follow the tree: consecutive members share a node, a rack, a block as far as can be.

A gang that has no member in place gets at least `gang_min` or nothing; once it is in place, and for replicas that are
no gang, as many as fit.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from typing import Any

from adjoin_allocator.amounts import counted
from adjoin_allocator.card_seats import CardSeats
from adjoin_allocator.demand import Demand
from adjoin_allocator.fabric import FabricTree
from adjoin_allocator.fit import STATE_LIMIT
from adjoin_allocator.members import Attempt, Gang, Member, Trial, device_values
from adjoin_allocator.model import Affinity, Claim, Pool
from adjoin_allocator.nodes import Having, Value
from adjoin_allocator.place import Ask, Placer
from adjoin_allocator.seats import SeatMemo, Seats, WholeSeats
from adjoin_allocator.spread import Shortage
from adjoin_allocator.tariff import of_cards
from adjoin_allocator.terms import Policy

VALUES = 256
"""So many combinations of values that all members share are tried."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What can be had.

    Attributes:
        members: By index; empty when too few fit.
        most: The most members that could be had, also when they are too few.
        shortage: Where these are; None when every missing member has a place.
        apart: Members in place lie in no one domain of this level, so none can join them; None when that is not so.
        strange: Members in place share no value of this attribute, which all must share; empty when that is not so.
        nodes: Nodes that hold a member.
        states: Search states seen.
        limit: A search was given up on the way.
    """

    members: tuple[Member, ...]
    most: int
    shortage: Shortage | None
    states: int
    limit: bool
    apart: int | None = None
    strange: str = ""
    nodes: int = 0


@dataclass(frozen=True, slots=True, eq=False)
class WhatIf:
    """The pool as it might be.

    Attributes:
        spare: By position devices that count as free too.
        opened: Closed nodes that count as open.
        hosts_count: Hosts have the CPU and memory that they have; else any amount.
    """

    spare: Mapping[int, int] = field(default_factory=dict)
    opened: frozenset[int] = frozenset()
    hosts_count: bool = True


AS_IT_IS = WhatIf()


def is_gang(claim: Claim) -> bool:
    """Whether a claim's replicas are chosen together: they are a gang, or a line of the fabric or an attribute binds
    them.
    """
    fabric = claim.fabric
    if claim.gang_min is not None or fabric.required or fabric.preferred or fabric.segment is not None:
        return True
    return bool(claim.affinity) and any(line.over_gang for line in claim.affinity)


def gang_flaws(pool: Pool, claim: Claim) -> Iterator[str]:
    """Why what a claim says of its members cannot be read against its pool: all that is wrong with it."""
    if not is_gang(claim):
        return
    levels = [level.name for level in pool.fabric]
    fabric = claim.fabric
    asked = [("required", fabric.required), ("preferred", fabric.preferred)]
    asked += [("segment", fabric.segment.level)] if fabric.segment is not None else []
    for field_name, level in asked:
        if level and level not in levels:
            listed = ", ".join(levels) or "none"
            yield f"fabric.{field_name} names level {level}, which pool {pool.name} does not have (it has: {listed})"
    if fabric.segment is not None and (fabric.segment.size < 1 or not fabric.segment.level):
        yield "fabric.segment must have a level and a size of at least 1"
    if claim.gang_min is not None and not 1 <= claim.gang_min <= claim.size:
        yield f"gang.minReplicas is {claim.gang_min}, which is not between 1 and its {counted(claim.size, 'replica')}"
    for line in claim.affinity:
        if line.over_gang and line.scope is not None:
            yield f"affinity with scope {line.scope} is over the gang, which only attributes can be"


def gang_of(placer: Placer, claim: Claim, asks: Sequence[Ask], missing: Sequence[int]) -> Gang:
    """A claim as a gang. Members whose node has gone from the inventory are lost: nobody joins them."""
    index = placer.ledger.pools[claim.pool].index
    absent = set(missing)
    wanted = frozenset(claim.members)
    held = {
        one.index: index.position[one.node]
        for one in claim.placed
        if one.index in wanted and one.index not in absent and one.node in index.position
    }
    return Gang(claim, tuple(asks), tuple(missing), held)


def arrange(
    placer: Placer,
    memo: SeatMemo,
    tree: FabricTree,
    gang: Gang,
    demand: Demand = (),
    what_if: WhatIf = AS_IT_IS,
    count_only: bool = False,
) -> Outcome:
    """The best places for the missing members, or with `count_only` how many there are: then `members` is empty and
    `most` what would be placed, or the most that could be had of a gang that would be too small. Costs a step for each
    node and some for each state of nodes, for each value that members may share.
    """
    asks = gang.asks
    states = 0
    ways = len(asks)
    if ways > 1 and not count_only:
        # The fewest of the ways, the best first, with which as many members fit as with all of them.
        wanted = _arrange(placer, memo, tree, gang, demand, what_if, True)
        states = wanted.states

        def enough(number: int) -> bool:
            fewer = _arrange(placer, memo, tree, replace(gang, asks=asks[:number]), demand, what_if, True)
            nonlocal states
            states += fewer.states
            return fewer.most >= wanted.most

        asks = asks[: 1 + bisect_left(range(1, len(asks)), True, key=enough)]
    found = _arrange(placer, memo, tree, replace(gang, asks=asks), demand, what_if, count_only)
    states += found.states
    if len(asks) > 1 and found.members:
        # Which of those that are needed serve how many, and whether one further down leaves more for the best.
        better = _arrange(placer, memo, tree, gang, demand, what_if, False, preferring=True)
        states += better.states
        if len(better.members) == len(found.members) and served(better, ways) > served(found, ways):
            found = better
    return replace(found, states=states)


def served(outcome: Outcome, ways: int) -> list[int]:
    """How many members are served in each way, the best first."""
    numbers = Counter(member.seat.ask for member in outcome.members)
    return [numbers[way] for way in range(ways)]


def _arrange(
    placer: Placer,
    memo: SeatMemo,
    tree: FabricTree,
    gang: Gang,
    demand: Demand,
    what_if: WhatIf,
    count_only: bool,
    preferring: bool = False,
) -> Outcome:
    """`arrange` for all the ways of a gang at once; `preferring` better ways to smaller domains."""
    lines = [line for line in gang.claim.affinity if line.scope is None]
    shared = [at for at, line in enumerate(lines) if line.over_gang and line.policy is Policy.MATCH]
    choices: list[list[Value]] = []
    for at in shared:
        shareable = _values(placer, gang, lines[at])
        if shareable is None:
            return Outcome((), 0, Shortage(0, 0, 0), 0, False, strange=lines[at].attribute)
        choices.append(shareable)
    best: Trial | None = None
    distinct = tuple(
        (at - sum(other < at for other in shared), line.attribute)
        for at, line in enumerate(lines)
        if line.over_gang and line.policy is Policy.DISTINCT
    )
    states, limit = 0, False
    for number, values in enumerate(product(*choices)):
        if number >= VALUES:
            limit = True
            break
        settled = dict(zip(shared, values, strict=True))
        asks = tuple(_sharing(placer, of_cards(placer, ask), settled) for ask in gang.asks)
        seats = _seats(placer, memo, asks, demand, what_if)
        trial = Attempt(gang, tree, seats, count_only, distinct, preferring).run()
        states, limit = states + seats.states, limit or seats.limit
        if states > STATE_LIMIT:
            return Outcome((), 0, Shortage(0, 0, 0), STATE_LIMIT + 1, True)
        if best is None or trial.key < best.key:
            best = trial
    if best is None:
        best = Trial((), 0, (), Shortage(0, 0, 0))
    whole = len(best.members) == len(gang.missing)
    return Outcome(
        members=best.members,
        most=best.most,
        shortage=None if whole else best.shortage,
        states=states,
        limit=limit and not whole and best.most < len(gang.missing),
        apart=best.apart,
        nodes=best.nodes,
    )


def _seats(placer: Placer, memo: SeatMemo, asks: tuple[Ask, ...], demand: Demand, what_if: WhatIf) -> Seats[Any]:
    """The nodes of a pool for members that ask so."""
    room = placer.host_rooms(asks[0]) if what_if.hosts_count else None
    parts = any(request.share is not None for ask in asks for request in ask.requests)
    kind: type[Seats[Any]] = CardSeats if parts else WholeSeats
    return kind(placer, memo, asks, demand, room, what_if.spare, what_if.opened)


def seats_of(placer: Placer, memo: SeatMemo, gang: Gang) -> Seats[Any]:
    """The nodes as they are for a gang's members, whatever binds these together, and whatever hosts have left."""
    return _seats(placer, memo, tuple(of_cards(placer, ask) for ask in gang.asks), (), WhatIf(hosts_count=False))


def _values(placer: Placer, gang: Gang, line: Affinity) -> list[Value] | None:
    """Values that all members may share, in one fixed order; None when those in place have none in common."""
    index = placer.ledger.pools[gang.claim.pool].index
    common: set[Value] | None = None
    for values in device_values(gang, index, line.attribute, line.requests):
        common = set(values) if common is None else common & values
    if common is None:
        common = {value for view in index.views for value in view.sharing(line.attribute)}
        return sorted(common, key=_value_order)
    return sorted(common, key=_value_order) or None


def _value_order(value: Value) -> tuple[str, object]:
    kind, what = value
    return kind.__name__, what


def _sharing(placer: Placer, ask: Ask, values: Mapping[int, Value]) -> Ask:
    """The ask when attribute lines, by their place, have settled on values."""
    if not values:
        return ask
    signature, question = ask.signature, ask.question
    having = tuple(
        Having(request, signature.attributes[at].attribute, value, not signature.counts[request])
        for at, value in values.items()
        for request in signature.attributes[at].requests
    )
    kept = tuple(line for at, line in enumerate(signature.attributes) if at not in values)
    return replace(
        ask,
        form=placer.fitter.form(replace(signature, attributes=kept)),
        question=replace(question, attributes=tuple(line.attribute for line in kept), having=having),
    )
