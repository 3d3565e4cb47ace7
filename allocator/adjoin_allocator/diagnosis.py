"""What stands in the way of a replica, node by node: the derivation that reasons are made of.

In come the placer, a ledger in which everything that could be placed is, and the ask that was refused; out comes a
`Diagnosis`: nodes in groups that are equal in everything that matters, each with what would help, found by putting
"what if" questions to the same solver that places: were devices on their way back free, were a line not there, were
what is unknown met. Nothing is taken here and no sentence is made.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum

from adjoin_allocator.cost import Mode, Signature
from adjoin_allocator.fit import Misfit, Obstacle, enough, relaxed
from adjoin_allocator.hosts import NOTHING, Rooms
from adjoin_allocator.nodes import PoolIndex, Shape, Sort, State
from adjoin_allocator.place import Ask, Placer
from adjoin_allocator.pool_ledger import STANDINGS
from adjoin_allocator.states import Masks, NodeState
from adjoin_allocator.terms import HoldKind, Scope, Standing
from adjoin_allocator.topology import bits


class Help(StrEnum):
    """What would make a replica fit on a node, if it were the other way."""

    RELEASING = "releasing"
    UNHEALTHY = "unhealthy"
    QUARANTINED = "quarantined"
    WITHHELD = "driver unavailable"
    UNGUARDED = "not guarded yet"


@dataclass(frozen=True, slots=True)
class Blocker:
    """A Required line that no choice on a node meets.

    Attributes:
        scope: Place among the signature's scope lines, or None.
        attribute: Place among its attribute lines, or None.
        unknown: It would be met if what is unknown were so.
        hint: A farther scope with which the node would fit; only where the facts for this one are published by no
            driver.
    """

    scope: int | None
    attribute: int | None
    unknown: bool
    hint: Scope | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True, eq=False)
class Group:
    """Nodes that are equal for the ask.

    Attributes:
        positions: Which, ascending; as long as the ledger does not change.
        free: Devices that could be given, up to exchanges of like devices, as all masks here: what a node itself has
            is in `Diagnosis.masks`.
        closed: Why it takes nothing new (class of `nodes.closed`), or "".
        most: By request how many of the free devices it may have can be given together.
        spare: By what would help, devices that are not free for that reason.
        roomy: Enough devices, were all of them free.
        together: Enough devices are free, whatever they are wired like.
        room: There is enough CPU and memory beside the devices.
        fits: There are the devices for a replica (and the node is closed or has no room, or else it would have been
            placed).
        limit: The search was given up.
        helps: Each of these alone would make it fit; nothing does where there is no room.
        blockers: Lines in the way where enough devices are free together.
    """

    positions: Sequence[int]
    shape: Shape
    sort: Sort
    free: int
    most: tuple[int, ...]
    closed: str
    spare: dict[Help, int]
    roomy: bool
    together: bool
    room: bool
    fits: bool
    limit: bool
    helps: tuple[Help, ...]
    blockers: tuple[Blocker, ...]

    @property
    def nodes(self) -> int:
        """How many nodes it is."""
        return len(self.positions)


@dataclass(frozen=True, slots=True, eq=False)
class Diagnosis:
    """Everything known about why an ask has no place.

    Attributes:
        eligible: By request the devices of the pool it may have, whoever holds them.
        free: By request those of them that are free.
        needed: By request how many it takes (of `all`, the fewest that match on a node).
        foreign: By request who or what else than the snapshot's claims holds such devices, with how many:
            ResourceClaims, and DeviceShares whose dwell is not over.
        masks: By position what is free on a node, and what is not.
        rooms: What hosts have left beside devices, if the ask needs anything of them.
    """

    ask: Ask
    index: PoolIndex
    groups: tuple[Group, ...]
    eligible: tuple[int, ...]
    free: tuple[int, ...]
    needed: tuple[int, ...]
    foreign: tuple[Mapping[str, int], ...]
    masks: Callable[[int], Masks]
    rooms: Rooms | None


_HELP = {
    Standing.UNHEALTHY: Help.UNHEALTHY,
    Standing.QUARANTINED: Help.QUARANTINED,
    Standing.WITHHELD: Help.WITHHELD,
    Standing.UNGUARDED: Help.UNGUARDED,
}


def spared(masks: Masks) -> dict[Help, int]:
    """By what would help, devices of a node that are not free for that reason."""
    standing = {_HELP[stand]: mask for stand, mask in zip(STANDINGS, masks.standing, strict=True)}
    return {Help.RELEASING: masks.back, **standing}


def diagnose(placer: Placer, ask: Ask) -> Diagnosis:
    """Looks at every node of the pool for one replica of `ask`."""
    ledger = placer.ledger.pools[ask.pool]
    index, states = ledger.index, placer.states(ask)
    sorts, examples = states.classes.sorts(ask.question), states.classes.examples
    parts: list[tuple[Sequence[int], NodeState, bool]] = []
    suffices = None if ask.host == NOTHING else placer.rooms(ask).suffices(ask.host)
    for number in states.live:
        positions, kind = states.members[number], states.kinds[number]
        if suffices is None:
            parts.append((positions, kind, True))
        else:
            for room in (True, False):
                here = [position for position in positions if bool(suffices[position]) is room]
                parts += [(here, kind, room)] if here else []
    parts.sort(key=lambda part: part[0][0])
    groups = tuple(
        _group(placer, ask, positions, examples[kind.number].shape, sorts[kind.number], kind.masks, room)
        for positions, kind, room in parts
    )
    requests = range(len(ask.requests))
    return Diagnosis(
        ask=ask,
        index=index,
        groups=groups,
        eligible=tuple(sum(g.sort.eligible[r].bit_count() * g.nodes for g in groups) for r in requests),
        free=tuple(sum(g.most[r] * g.nodes for g in groups) for r in requests),
        needed=tuple(
            request.count
            if not request.all_devices
            else min((g.sort.eligible[r].bit_count() for g in groups if g.sort.eligible[r]), default=1)
            for r, request in enumerate(ask.requests)
        ),
        foreign=_foreign(placer, ask, lambda position: sorts[states.classes.of[position]]),
        masks=ledger.masks,
        rooms=None if ask.host == NOTHING else placer.rooms(ask),
    )


def _foreign(placer: Placer, ask: Ask, sort: Callable[[int], Sort]) -> tuple[Mapping[str, int], ...]:
    counts: tuple[Counter[str], ...] = tuple(Counter() for _ in ask.requests)
    for device, hold in placer.ledger.holds.items():
        found = placer.nodes.locate(device) if hold.kind is HoldKind.FOREIGN else None
        if found is not None and found[0].pool.name == ask.pool:
            _, position, bit = found
            for request, count in enumerate(counts):
                count[hold.holder] += sort(position).eligible[request] >> bit & 1
    for position, mask in placer.ledger.pools[ask.pool].dwelling():
        for bit in bits(mask):
            share, _ = placer.ledger.parts.mode(ask.pool, position, bit) or ("", False)
            for request, count in enumerate(counts):
                count[f"the dwell of DeviceShare {share}"] += sort(position).eligible[request] >> bit & 1
    return tuple(+count for count in counts)


def _group(
    placer: Placer,
    ask: Ask,
    positions: Sequence[int],
    shape: Shape,
    sort: Sort,
    masks: Masks,
    room: bool,
) -> Group:
    free, shut, spare = masks.free, masks.shut, spared(masks)

    def fits(mask: int) -> bool:
        return placer.fitter.fits(ask.form, (shape, sort, mask))

    obstacle: Obstacle | None = None
    helps: tuple[Help, ...] = ()
    if not fits(free):
        answer = placer.fitter.fit(ask.form, (shape, sort, free))
        obstacle = answer.obstacle if isinstance(answer, Misfit) else None
        if room and not shut:
            helps = tuple(what for what, mask in spare.items() if mask and fits(free | mask))
    return Group(
        positions=positions,
        shape=shape,
        sort=sort,
        free=shape.usable(free),
        most=tuple(shape.most(free, mask) for mask in sort.eligible),
        closed=shut,
        spare=spare,
        roomy=enough(ask.signature, sort, -1),
        together=obstacle is not Obstacle.COUNT,
        room=room,
        fits=obstacle is None,
        limit=obstacle is Obstacle.LIMIT,
        helps=helps,
        blockers=tuple(_blockers(placer, ask, shape, sort, free)) if obstacle is Obstacle.LINES else (),
    )


def _blockers(placer: Placer, ask: Ask, shape: Shape, sort: Sort, free: int) -> Iterator[Blocker]:
    """The Required lines to blame: those without which it would fit; if there is none, those that cannot be met even
    alone; if each can, all of them together.
    """
    signature = ask.signature
    lines: list[tuple[int | None, int | None]] = [
        (at, None) for at, line in enumerate(signature.scopes) if line.required
    ]
    lines += [(None, at) for at in range(len(signature.attributes))]

    def fits(modes: dict[tuple[int | None, int | None], Mode]) -> bool:
        scopes = {scope: mode for (scope, _), mode in modes.items() if scope is not None}
        attributes = {at: mode for (_, at), mode in modes.items() if at is not None}
        form = placer.fitter.form(relaxed(signature, scopes, attributes))
        return placer.fitter.fits(form, (shape, sort, free))

    off = dict.fromkeys(lines, Mode.OFF)
    single = [line for line in lines if fits({line: Mode.OFF})]
    if single:
        for line in single:
            unknown = fits({line: Mode.LENIENT})
            yield Blocker(*line, unknown, _hint(placer, signature, line[0], (shape, sort, free)) if unknown else None)
        return
    hopeless = [line for line in lines if not fits({**off, line: Mode.STRICT})]
    if hopeless:
        for line in hopeless:
            yield Blocker(*line, unknown=fits({**off, line: Mode.LENIENT}))
        return
    unknown = fits(dict.fromkeys(lines, Mode.LENIENT))
    for line in lines:
        yield Blocker(*line, unknown=unknown)


def _hint(placer: Placer, signature: Signature, line: int | None, state: State) -> Scope | None:
    """PCIeRoot, where it would fit and a switch was asked for, which no driver publishes."""
    if line is None or signature.scopes[line].scope is not Scope.PCIE_SWITCH:
        return None
    scopes = list(signature.scopes)
    scopes[line] = replace(scopes[line], scope=Scope.PCIE_ROOT)
    form = placer.fitter.form(replace(signature, scopes=tuple(scopes)))
    return Scope.PCIE_ROOT if placer.fitter.fits(form, state) else None
