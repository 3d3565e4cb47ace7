"""Whose devices a replica waits for: the fewest holders that must give theirs back so that it fits.

In come the placer, the ask that was refused, and the asks that wait before it in the order of service; out comes a
sentence, or None. Two questions are asked of the nodes that lack least: would it fit with devices that are on their way
back already, and would it fit if claims ended. An answer is true of the order as it is: it is not given when somebody
who is served earlier could take the node instead. Nothing is taken here; counting comes before searching, and nodes,
holders and searches that are looked at are bounded, so that there may be an answer which is not found.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from re import fullmatch

from adjoin_allocator.fit import enough, lacking
from adjoin_allocator.model import Claim, ClaimUID, PlacedReplica, PlacedShare
from adjoin_allocator.nodes import NodeView, Sort
from adjoin_allocator.place import Ask, Placer
from adjoin_allocator.pool_ledger import PoolLedger
from adjoin_allocator.results import Placement
from adjoin_allocator.terms import HoldKind
from adjoin_allocator.topology import bits

NODES = 16
"""Nodes that are looked at, those that lack least first."""

HANDS = 12
"""Holders on a node among which the fewest are sought."""

TOGETHER = 3
"""Holders that an answer names at most."""

SEARCHES = 64
"""Searches for one answer."""

AHEAD = 16
"""Different asks that may wait before this one."""


CLAIM = "DeviceClaim "

Given = Mapping[tuple[str, int], Sequence[tuple[Claim, int, tuple[tuple[int, PlacedShare], ...]]]]
"""By pool and position who was given what of a node by this very decision: all devices, and parts of which of them."""

NOBODY: Given = {}


@dataclass(frozen=True, slots=True)
class Hand:
    """Devices of one node in one hand.

    Attributes:
        name: Who, in words.
        mask: All of them.
        back: Those on their way back.
        gone: When those are back, nobody who is known wants them again.
    """

    name: str
    mask: int
    back: int
    gone: bool


def returning(
    placer: Placer, ask: Ask, ahead: Sequence[Ask], mine: ClaimUID | None = None, given: Given = NOBODY
) -> str | None:
    """`fits when team/job has given back node-3 gpu-0..gpu-3 (releasing)`."""
    found = _smallest(placer, ask, ahead, mine, ending=False, given=given)
    if found is None:
        return None
    view, sort, hands = found
    wanted = _union(sort.eligible)
    what = (
        f"{hand.name.removeprefix(CLAIM)} has given back {view.name} {_named(view, hand.back & wanted)}"
        for hand in hands
    )
    return f"fits when {' and '.join(what)} (releasing)"


def ending(
    placer: Placer, ask: Ask, ahead: Sequence[Ask], mine: ClaimUID | None = None, given: Given = NOBODY
) -> str | None:
    """`fits once DeviceClaim team/job ends`."""
    found = _smallest(placer, ask, ahead, mine, ending=True, given=given)
    if found is None:
        return None
    names = [hand.name for hand in found[2]]
    return f"fits once {' and '.join(names)} {'ends' if len(names) == 1 else 'end'}"


def given_to(placer: Placer, placed: Iterable[tuple[Claim, Iterable[Placement]]]) -> Given:
    """What a decision has given to whom."""
    given: dict[tuple[str, int], list[tuple[Claim, int, tuple[tuple[int, PlacedShare], ...]]]] = {}
    for claim, placements in placed:
        for placement in placements:
            mask, parts = 0, list[tuple[int, PlacedShare]]()
            for device in placement.devices:
                found = placer.nodes.locate(device.id)
                assert found is not None, "what was placed is there"
                mask |= 1 << found[2]
                if device.share is not None:
                    parts.append((found[2], device.share))
            position = placer.ledger.pools[claim.pool].index.position[placement.node]
            given.setdefault((claim.pool, position), []).append((claim, mask, tuple(parts)))
    return given


def _smallest(
    placer: Placer, ask: Ask, ahead: Sequence[Ask], mine: ClaimUID | None, ending: bool, given: Given
) -> tuple[NodeView, Sort, tuple[Hand, ...]] | None:
    """The node with the fewest holders in the way, then the fewest devices of theirs, then the fewest that lack, then
    the first; and those holders.
    """
    before = {(other.form, other.question): other for other in ahead if other.pool == ask.pool}
    if len(before) > AHEAD or not ask.requests:
        return None
    ledger = placer.ledger.pools[ask.pool]
    best: tuple[tuple[int, int], tuple[NodeView, Sort, tuple[Hand, ...]]] | None = None
    searches = SEARCHES
    for short, sort, position in _candidates(placer, ask):
        view = ledger.index.views[position]
        wanted = _union(sort.eligible) & view.offered
        if view.shape.counters is not None:
            # Whoever has something of the same card is in the way too, also of what is published no more.
            wanted = view.shape.rivals(wanted)
        hands = list(_hands(placer, ask.pool, position, mine, given))
        usable = [
            hand
            for hand in hands
            if (hand.mask & ~hand.back if ending else hand.gone and hand.back) and hand.mask & wanted
        ]
        least = _fewest([((hand.mask if ending else hand.back) & wanted).bit_count() for hand in usable], short)
        # Whoever gives fewer than are lacking cannot be better than who was found to give as many.
        if least is None or len(usable) > HANDS or (best is not None and (least, short) >= best[0]):
            continue
        if not enough(ask.signature, sort, _freed(ledger, position, hands, usable, ending)):
            continue
        for size in range(least, min(TOGETHER, len(usable), best[0][0] if best else TOGETHER) + 1):
            for chosen in combinations(usable, size):
                cost = (size, sum((hand.mask if ending else hand.back).bit_count() for hand in chosen))
                if cost[1] < short or not searches or (best is not None and cost >= best[0]):
                    continue
                free = _freed(ledger, position, hands, chosen, ending)
                if not enough(ask.signature, sort, free):
                    continue
                searches -= ask.form.bound
                if placer.fitter.fits(ask.form, (view.shape, sort, free)) and not any(
                    placer.fitter.fits(other.form, (view.shape, placer.sort(other, position), free))
                    for other in before.values()
                ):
                    best = (cost, (view, sort, chosen))
    return None if best is None else best[1]


def _fewest(gives: Sequence[int], short: int) -> int | None:
    """How many holders it takes at least to give so many devices; None when all do not."""
    given = 0
    for count, most in enumerate(sorted(gives, reverse=True), start=1):
        given += most
        if given >= short:
            return count
    return None


def _candidates(placer: Placer, ask: Ask) -> Iterator[tuple[int, Sort, int]]:
    """Nodes that could hold a replica if they were empty, with how many devices they lack, the fewest first."""
    states: list[tuple[int, Sequence[int], Sort]] = []
    found = placer.states(ask)
    sorts = found.classes.sorts(ask.question)
    for number in found.open:
        kind = found.kinds[number]
        sort = sorts[kind.number]
        if enough(ask.signature, sort, -1):
            states.append((lacking(ask.signature, sort, kind.masks.free), found.members[number], sort))
    states.sort(key=lambda state: (state[0], state[1][0]))
    left = NODES
    for short, positions, sort in states:
        for position in positions[:left]:
            if placer.host_room(ask, position):
                yield short, sort, position
        left -= len(positions)
        if left <= 0:
            return


def _hands(placer: Placer, pool: str, position: int, mine: ClaimUID | None, given: Given) -> Iterator[Hand]:
    """Who holds devices of a node, or parts of them, in the order of the words for them; but for the claim itself. A
    device is only free of parts when all who have any have let go.
    """
    found: dict[str, Hand] = {}
    ledger = placer.ledger

    def add(name: str, mask: int, back: int, again: bool) -> None:
        known = found.get(name, Hand(name, 0, 0, gone=True))
        # Of one device the same claim may give back one part and keep another.
        kept = (known.mask & ~known.back) | (mask & ~back)
        found[name] = Hand(name, known.mask | mask, (known.back | back) & ~kept, known.gone and not again)

    def enter(claim: Claim, replica: PlacedReplica, mask: int, back: bool) -> None:
        if claim.uid != mine:
            wanted = not claim.deleting and (replica.index in claim.members or claim.uid in ledger.conflicts)
            add(_name(claim), mask, mask if back else 0, again=back and wanted)

    for claim, replica, mask, back in ledger.hands(pool, position):
        enter(claim, replica, mask, back)
    for claim, replica, parts, back in ledger.part_hands(pool, position):
        enter(claim, replica, _union([1 << bit for bit, _ in parts]), back)
    for claim, mask, _ in given.get((pool, position), ()):
        if claim.uid != mine:
            add(_name(claim), mask, 0, again=False)
    if ledger.holds:
        for at, device in enumerate(ledger.pools[pool].index.views[position].devices):
            hold = ledger.holds.get(device.id)
            if hold is not None:
                add(hold.holder, 1 << at, 1 << at if hold.kind is HoldKind.RELEASING else 0, again=False)
    yield from sorted(found.values(), key=lambda hand: hand.name)


def _name(claim: Claim) -> str:
    return f"{CLAIM}{claim.namespace}/{claim.name}"


def _freed(ledger: PoolLedger, position: int, hands: Sequence[Hand], chosen: Sequence[Hand], ending: bool) -> int:
    """What would be free on the node without the devices that these let go."""
    held = ledger.held(position) & ~_union([hand.mask for hand in hands])
    for hand in hands:
        if hand not in chosen:
            held |= hand.mask
        elif not ending:
            held |= hand.mask & ~hand.back
    return ledger.index.views[position].state(held)


def _union(masks: Sequence[int]) -> int:
    union = 0
    for mask in masks:
        union |= mask
    return union


def _named(view: NodeView, mask: int) -> str:
    """`gpu-0..gpu-3, nic-1`: names of devices, those that follow each other in one."""
    runs: list[list[str]] = []
    for at in bits(mask):
        name = view.devices[at].id.device
        if runs and _follows(runs[-1][-1], name):
            runs[-1].append(name)
        else:
            runs.append([name])
    return ", ".join(f"{run[0]}..{run[-1]}" if len(run) > 2 else ", ".join(run) for run in runs)


def _follows(one: str, other: str) -> bool:
    mine, theirs = (fullmatch(r"(.*?)(0|[1-9]\d{0,8})", name) for name in (one, other))
    return bool(mine and theirs and mine[1] == theirs[1] and int(mine[2]) + 1 == int(theirs[2]))
