"""Which replicas with parts of devices could leave loaded nodes.

In come a snapshot and a pool, out comes a `Relief`: nodes that are loaded, moves of replicas away from them, which are
possible all together, and who has to stay. It is advice: nothing is decided, and the snapshot is not changed. Loaded is
what is loaded when a part is given out (`hosts`), so no move leads to a node from which the next advice would lead away
again, unless the moves themselves load it.

Where they go is asked of `plan()`, with the loaded nodes closed and nobody else asking, in the order of service: who
fits beside those before him has a move.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from adjoin_allocator.hosts import NOTHING
from adjoin_allocator.model import Claim, ClaimUID, Node, PlacedReplica, PreemptionRules
from adjoin_allocator.snapshot import Snapshot
from adjoin_allocator.solve import Memo, plan
from adjoin_allocator.stage import PASSED_OVER, SETTLED, Key, Move, alike
from adjoin_allocator.terms import ReplicaState


@dataclass(frozen=True, slots=True)
class Stay:
    """A replica on a loaded node, and why it cannot leave."""

    uid: ClaimUID
    index: int
    node: str
    why: str


@dataclass(frozen=True, slots=True)
class Relief:
    """What could leave loaded nodes.

    Attributes:
        loaded: Loaded nodes of the pool, in stable order.
        leaves: In the order of the snapshot's claims; possible all together.
        stays: Replicas with parts of devices on these nodes that have nowhere to go.
    """

    loaded: tuple[str, ...]
    leaves: tuple[Move, ...] = ()
    stays: tuple[Stay, ...] = ()


def relieve(snapshot: Snapshot, now: float, pool: str, memo: Memo | None = None) -> Relief:
    """The advice on `pool`, which the snapshot has."""
    memo = memo or Memo()
    known = snapshot.pools[pool]
    quiet = replace(known, preemption=PreemptionRules(), hold_after=None)
    arranged = replace(
        snapshot,
        pools={**snapshot.pools, pool: quiet},
        claims=tuple(replace(claim, hold=claim.hold or PASSED_OVER) for claim in snapshot.claims),
    )
    loaded: set[str] = set()
    leaves: dict[Key, Move] = {}
    stays: dict[Key, Stay] = {}
    own = {claim.uid: claim.hold for claim in snapshot.claims}
    # Whoever says what he needs of a node sees in promises to others a question of room alone.
    for told in (True, False):
        nodes = _loaded(arranged, now, pool, memo, told=told)
        loaded |= nodes
        mine = [
            claim
            for claim in arranged.claims
            if claim.pool == pool and not claim.deleting and (claim.host != NOTHING) is told
        ]
        keys = [(claim.uid, each.index) for claim in mine for each in claim.placed if _leaves(claim, each, nodes)]
        movable = {claim.uid for claim in mine if claim.preemptible and own[claim.uid] is None}
        for claim in mine:
            if claim.uid not in movable:
                why = "it is not preemptible" if not claim.preemptible else "its claim is held back"
                for each in claim.placed:
                    if (claim.uid, each.index) in keys:
                        stays[claim.uid, each.index] = Stay(claim.uid, each.index, each.node, why)
        asking = [key for key in keys if key[0] in movable]
        if not asking:
            continue
        made = plan(_asking(arranged, asking, nodes), now, memo)
        moved: dict[Key, PlacedReplica] = {}
        for claim in mine:
            answer = made.claims.get(claim.uid)
            found = {} if answer is None else {each.index: each for each in answer.placements}
            for each in claim.placed:
                key = (claim.uid, each.index)
                if key not in asking:
                    continue
                to = found.get(each.index)
                if to is not None and alike(each.devices, to.devices):
                    leaves[key] = Move(*key, each.node, each.devices, to.node, to.devices)
                    moved[key] = PlacedReplica(each.index, to.node, ReplicaState.ALLOCATED, to.devices)
                else:
                    why = answer.reasons[0].message if answer is not None and answer.reasons else "no place"
                    stays[key] = Stay(*key, each.node, why)
        arranged = replace(
            arranged,
            claims=tuple(
                replace(claim, placed=tuple(moved.get((claim.uid, each.index), each) for each in claim.placed))
                for claim in arranged.claims
            ),
        )
    order = [(claim.uid, each.index) for claim in snapshot.claims for each in claim.placed]
    return Relief(
        loaded=tuple(name for name in snapshot.inventory if name in loaded),
        leaves=tuple(leaves[key] for key in order if key in leaves),
        stays=tuple(stays[key] for key in order if key in stays),
    )


def _loaded(snapshot: Snapshot, now: float, pool: str, memo: Memo, *, told: bool) -> set[str]:
    """The loaded nodes of a pool, as those see it who say what they need of a node, or who do not."""
    memo.ledger.enter(snapshot, now)
    index = memo.ledger.pools[pool].index
    rooms = memo.ledger.hosts.rooms(index)
    loaded = rooms.busy if told else rooms.busy | rooms.full
    return {view.name for view, each in zip(index.views, loaded.tolist(), strict=True) if each}


def _leaves(claim: Claim, replica: PlacedReplica, nodes: Collection[str]) -> bool:
    settled = replica.state in SETTLED and replica.index in claim.members
    return settled and replica.node in nodes and any(device.share is not None for device in replica.devices)


def _asking(snapshot: Snapshot, keys: Sequence[Key], nodes: Collection[str]) -> Snapshot:
    """The snapshot in which these replicas have no place, and seek one on other nodes."""
    gone = set(keys)
    uids = {uid for uid, _ in keys}
    claims = tuple(
        replace(claim, hold=None, placed=tuple(each for each in claim.placed if (claim.uid, each.index) not in gone))
        if claim.uid in uids
        else claim
        for claim in snapshot.claims
    )
    closed: dict[str, Node] = {
        name: replace(node, unschedulable=True) if name in nodes else node for name, node in snapshot.nodes.items()
    }
    return replace(snapshot, claims=claims, nodes=closed)
