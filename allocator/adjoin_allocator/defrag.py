"""Which replicas would have to move so that a waiting claim fits.

In come a snapshot, a pool and perhaps a claim; out comes an `Advice`: moves (a replica from its devices to others), the
fewest devices moved first, and where the claim goes then. It is advice: nothing is decided, and the snapshot is not
changed. Only replicas of preemptible claims are moved.

1. Which claim: the one that is named, or the one that wants most devices of those that wait.
2. Without everything that may move, does it fit? If not, no moves can help.
3. Few enough sets of devices: all of them are tried by `rearrange`, cheapest first. Which sets would do for a replica
   is asked of `plan()` on a node where nothing else is free.
4. Else room is made on one node after the other (`room`).
   Where parts of devices are in the way, or wanted, choices of replicas are tried instead (`part_moves`).
5. Whatever comes out is proven: with any one of the moved replicas taken out and nothing else free, `plan()` gives it
   the place that it was moved to; and `plan()` on the snapshot with the moves made places the claim. So every rule that
   `plan()` knows holds for the result, whoever found it.

Work is bounded by counting, so the same snapshot gives the same advice.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import chain, combinations, product
from math import comb, prod
from typing import Final

from adjoin_allocator.amounts import counted
from adjoin_allocator.inquiry import asked_milli
from adjoin_allocator.model import Claim, ClaimUID, Device, DeviceID, PlacedDevice, PlacedShare, natural_key
from adjoin_allocator.part_moves import TRIES, exhaustive, trials
from adjoin_allocator.rearrange import Exhausted, Piece, Rearrangement, rearrangements
from adjoin_allocator.results import Placement, Plan
from adjoin_allocator.room import NODES, make_room
from adjoin_allocator.snapshot import Snapshot
from adjoin_allocator.solve import Memo, plan
from adjoin_allocator.stage import Key, Move, Spots, Stage, divides, least

SETS: Final = 1_000
"""With no more sets of devices than this all of them are tried."""
STEPS: Final = 40_000
"""So many steps of an exhaustive search."""
PROOFS: Final = 50
"""So many rearrangements are tried to be proven."""


class Outcome(StrEnum):
    """What came of it."""

    NOTHING_WAITS = "NothingWaits"
    FITS = "Fits"
    """It needs no moves."""
    MOVES = "Moves"
    NO_MOVES = "NoMoves"
    """There are none: proven."""
    NOT_FOUND = "NotFound"
    """None were found within the limits; there may be some."""


@dataclass(frozen=True, slots=True)
class Advice:
    """What would make a claim fit.

    Attributes:
        uid: The claim; None when none waits.
        moves: In the order of the snapshot's claims; they are made at once, not one after the other.
        placements: Where the claim's missing replicas go once the moves are made.
        fewest: It is proven that no moves of fewer devices would do.
        why: For an outcome without moves, in words.
    """

    outcome: Outcome
    uid: ClaimUID | None = None
    moves: tuple[Move, ...] = ()
    placements: tuple[Placement, ...] = ()
    fewest: bool = False
    why: str = ""

    @property
    def devices(self) -> int:
        """How many devices are moved."""
        return sum(len(move.devices) for move in self.moves)


def defragment(
    snapshot: Snapshot,
    now: float,
    pool: str,
    uid: ClaimUID | None = None,
    *,
    sets: int = SETS,
    memo: Memo | None = None,
) -> Advice:
    """Advice on `pool`, which the snapshot has. With more than `sets` sets of devices the search is not exhaustive."""
    memo = memo or Memo()
    made = plan(snapshot, now, memo)
    target = _target(snapshot, made, pool, uid)
    if target is None:
        return Advice(Outcome.NOTHING_WAITS)
    answer = made.claims.get(target.uid)
    if answer is None or not answer.reasons:
        return Advice(Outcome.FITS, target.uid, placements=answer.placements if answer is not None else ())
    if target.hold is not None or target.pool != pool:
        return Advice(Outcome.NO_MOVES, target.uid, why=answer.reasons[0].message)
    stage = Stage(snapshot, now, made, target, memo)
    everybody = [*stage.movable, *stage.shared]
    last = stage.fits_without(everybody)
    if last:
        why = f"not even without the {counted(len(everybody), 'replica')} that may move: {last}"
        return Advice(Outcome.NO_MOVES, target.uid, why=why)
    if not stage.shared and not divides(target):
        return _try_all(stage, sets) or _try_nodes(stage)
    return _try_parts(stage, sets)


def _try_parts(stage: Stage, sets: int) -> Advice:
    """Where devices are given in parts, to who is in the way or to the target."""
    found = None
    tried = 0
    for trial in trials(stage):
        placements = stage.prove(trial.spots, parts=True)
        if placements is not None:
            moves = _moves(stage, trial.spots)
            found = Advice(Outcome.MOVES, stage.target.uid, moves, placements, trial.certain and not tried)
            break
        tried += 1
        if tried >= PROOFS:
            break
    if found is not None and found.fewest:
        return found
    if found is None and not tried and exhaustive(stage):
        return Advice(Outcome.NO_MOVES, stage.target.uid, why="every choice of those that may move was tried")
    # Who has whole devices may be in the way alone; those with parts then stay where they are.
    if stage.movable and not divides(stage.target):
        whole = _try_all(stage, sets) or _try_nodes(stage)
        if whole.outcome is Outcome.MOVES and (found is None or whole.devices < found.devices):
            return replace(whole, fewest=False)
    if found is not None:
        return found
    why = f"none were found in {TRIES} choices of replicas that would leave; there may be others"
    return Advice(Outcome.NOT_FOUND, stage.target.uid, why=why)


def _moves(stage: Stage, spots: Spots) -> tuple[Move, ...]:
    """Who goes elsewhere, in the order of the claims."""
    every = {**stage.movable, **stage.shared}
    keys = [(claim.uid, each.index) for claim in stage.snapshot.claims for each in claim.placed]
    return tuple(
        Move(*key, every[key].node, every[key].devices, *spots[key])
        for key in dict.fromkeys(keys)
        if key in spots and Counter(map(_place, spots[key][1])) != Counter(map(_place, every[key].devices))
    )


def _place(device: PlacedDevice) -> tuple[DeviceID, PlacedShare | None]:
    return device.id, device.share


def _target(snapshot: Snapshot, made: Plan, pool: str, uid: ClaimUID | None) -> Claim | None:
    """The claim that is meant, or the one that wants most devices; of equal ones the first."""
    if uid is not None:
        return next((claim for claim in snapshot.claims if claim.uid == uid), None)
    waiting = [
        claim
        for claim in snapshot.claims
        if claim.pool == pool and claim.hold is None and claim.uid in made.claims and made.claims[claim.uid].reasons
    ]
    return max(waiting, key=lambda claim: sum(asked_milli(snapshot, claim).values()), default=None)


def _advice(stage: Stage, spots: Spots, *, fewest: bool) -> Advice | None:
    """The advice to move replicas to `spots`, if it can be proven. Where `plan()` would rather put them, if that is
    as good for the claim.
    """
    keys = tuple(key for key in stage.movable if key in spots)
    rather = stage.planned(keys, {key: spot for key, spot in spots.items() if key not in keys}) if keys else None
    for tried in (rather, {key: spots[key] for key in keys}):
        placements = stage.prove(tried) if tried is not None else None
        if tried is not None and placements is not None:
            moves = tuple(
                Move(*key, stage.movable[key].node, stage.movable[key].devices, *tried[key])
                for key in keys
                if {each.id for each in tried[key][1]} != {each.id for each in stage.movable[key].devices}
            )
            return Advice(Outcome.MOVES, stage.target.uid, moves, placements, fewest)
    return None


# All sets of devices

_Sets = Mapping[int, tuple[PlacedDevice, ...]]
"""Sets of devices that would do for a replica, with what each device is for."""
_Candidate = tuple[str, tuple[Device, ...]]
"""A node and some of its devices."""


def _try_all(stage: Stage, budget: int) -> Advice | None:
    """The answer of the exhaustive search; None when there is too much to try."""
    order = sorted(stage.devices, key=lambda each: (natural_key(stage.devices[each].node), natural_key(str(each))))
    bit = {device: 1 << place for place, device in enumerate(order)}
    movable = [key for key, held in stage.movable.items() if any(device.id in bit for device in held.devices)]
    usable = stage.free | {device.id for key in movable for device in stage.movable[key].devices}
    asking = {_kind(stage.claims[uid]): stage.claims[uid] for uid, _ in ((stage.target.uid, 0), *movable)}
    numbers: dict[tuple[object, ...], list[_Candidate]] = {}
    # Whether there is too much to try is known before any set is tried.
    for kind, claim in asking.items():
        candidates = _candidates(stage, claim, usable, budget)
        if candidates is None:
            return None
        budget -= len(candidates)
        numbers[kind] = candidates
    known = {kind: _valid(stage, claim, numbers[kind], bit) for kind, claim in asking.items()}
    keys = [*((stage.target.uid, index) for index in stage.missing()), *movable]
    sets = [known[_kind(stage.claims[uid])] for uid, _ in keys]
    pieces = [
        Piece(
            sets=tuple(each),
            at=sum(bit.get(device.id, 0) for device in stage.movable[key].devices) if key in stage.movable else 0,
            weight=stage.weight([key]) if key in stage.movable else 0,
        )
        for key, each in zip(keys, sets, strict=True)
    ]
    tried = 0
    try:
        for found in rearrangements(pieces, sum(bit[device] for device in stage.free), STEPS):
            # Until a cheaper one failed the proof, this is the cheapest.
            advice = _advice(stage, _spots(stage, keys, sets, found), fewest=not tried)
            if advice is not None:
                return advice
            tried += 1
            if tried >= PROOFS:
                return None
    except Exhausted:
        return None
    if tried:
        return None
    return Advice(Outcome.NO_MOVES, stage.target.uid, why="every rearrangement of what may move was tried")


def _spots(stage: Stage, keys: Sequence[Key], sets: Sequence[_Sets], found: Rearrangement) -> Spots:
    spots = {}
    for place, mask in found.taken.items():
        devices = sets[place][mask]
        spots[keys[place]] = (stage.devices[devices[0].id].node, devices)
    return spots


def _kind(claim: Claim) -> tuple[object, ...]:
    """Claims of one kind take the same sets of devices."""
    return claim.requests, claim.affinity, claim.host, claim.profile


def _candidates(stage: Stage, claim: Claim, usable: frozenset[DeviceID], budget: int) -> list[_Candidate] | None:
    """Sets of devices of one node that could do by their numbers; None when these are more than `budget`."""
    needed = least(claim)
    plain = not any(request.first_of or request.all_devices for request in claim.requests)
    found: list[_Candidate] = []
    for name, devices in stage.snapshot.inventory.items():
        kinds = {kind: [each for each in devices if each.id in usable and each.kind == kind] for kind in needed}
        most = Counter({kind: len(mine) for kind, mine in kinds.items()})
        if any(most[kind] < amount for kind, amount in needed.items()):
            continue
        sizes = {kind: (amount,) if plain else range(amount, most[kind] + 1) for kind, amount in needed.items()}
        work = prod(sum(comb(most[kind], size) for size in each) for kind, each in sizes.items())
        if len(found) + work > budget:
            return None
        found += [(name, tuple(chain(*chosen))) for chosen in product(*(_some(kinds[k], sizes[k]) for k in needed))]
    return found


def _some(devices: Sequence[Device], sizes: Sequence[int]) -> list[tuple[Device, ...]]:
    return [chosen for size in sizes for chosen in combinations(devices, size)]


def _valid(stage: Stage, claim: Claim, candidates: Sequence[_Candidate], bit: Mapping[DeviceID, int]) -> _Sets:
    """The candidates that would do for one replica."""
    valid: dict[int, tuple[PlacedDevice, ...]] = {}
    for node, chosen in candidates:
        ids = {device.id for device in chosen}
        placed = stage.alone(claim, node, ids)
        if placed and {device.id for device in placed} == ids:
            valid[sum(bit[device] for device in ids)] = placed
    return valid


# One node after the other


def _try_nodes(stage: Stage) -> Advice:
    spots = make_room(stage)
    advice = _advice(stage, spots, fewest=False) if spots is not None else None
    if advice is not None:
        return advice
    if spots is not None:
        why = "room could be made, but plan() would not give it to this claim: others are served before it"
    else:
        why = f"none were found on the {NODES} nodes that come nearest; there may be others"
    return Advice(Outcome.NOT_FOUND, stage.target.uid, why=why)
