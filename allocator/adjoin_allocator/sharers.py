"""Who shares a device with whom.

In come a ledger that was brought to a snapshot, a pool and a node's position; out come its divided devices, each with
the parts that replicas have of it, and what is left, in words. Only what stands in claims' statuses is looked at.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from adjoin_allocator.hosts import NOTHING
from adjoin_allocator.ledger import Ledger
from adjoin_allocator.model import Claim, ClaimUID, DeviceID, PlacedShare, Request
from adjoin_allocator.terms import Profile


@dataclass(frozen=True, slots=True)
class Sharer:
    """A replica with equal parts of a device.

    Attributes:
        times: How many such parts.
        back: It is on its way out.
    """

    claim: Claim
    index: int
    share: PlacedShare
    times: int
    back: bool


@dataclass(frozen=True, slots=True)
class SharedDevice:
    """A device of which somebody has a part.

    Attributes:
        sharers: In the order of claims and replicas.
        left: What it has left, in words; "" where its share is not known.
    """

    id: DeviceID
    sharers: tuple[Sharer, ...]
    left: str

    def neighbours(self, uid: ClaimUID | None = None, index: int = -1) -> Mapping[Profile, int]:
        """How many replicas share it, by profile; beside one of them, if that is named."""
        others = {(each.claim.uid, each.index): each.claim.profile for each in self.sharers}
        if uid is not None:
            others.pop((uid, index), None)
        found = Counter(others.values())
        return {profile: found[profile] for profile in Profile if found[profile]}


def shared_devices(ledger: Ledger, pool: str, position: int) -> Mapping[DeviceID, SharedDevice]:
    """The divided devices of a node, by id."""
    view = ledger.pools[pool].index.views[position]
    held: dict[int, list[Sharer]] = {}
    hands = sorted(ledger.part_hands(pool, position), key=lambda hand: (hand[0].namespace, hand[0].name, hand[1].index))
    for claim, replica, parts, back in hands:
        for (bit, share), times in Counter(parts).items():
            held.setdefault(bit, []).append(Sharer(claim, replica.index, share, times, back))
    found = {}
    for bit, sharers in sorted(held.items()):
        device = view.devices[bit]
        found[device.id] = SharedDevice(device.id, tuple(sharers), _left(ledger, pool, position, bit))
    return found


def _left(ledger: Ledger, pool: str, position: int, bit: int) -> str:
    kind = ledger.pools[pool].index.views[position].devices[bit].kind
    stock = ledger.parts.appraiser(pool, kind).stock
    column = ledger.parts.columns(pool, kind, position).index(bit)
    used = stock.use(position, column)
    return "" if used is None else stock.rules[used[0]][stock.klass.item(position, column)].told(used[1])


def can_give(ledger: Ledger, pool: str, request: Request) -> frozenset[DeviceID]:
    """The devices of which a request for parts could have one now; none for a share that is not there."""
    share = None if request.share is None else ledger.parts.shares.get(request.share.name)
    if share is None or share.pool != pool or share.kind != request.kind:
        return frozenset()
    kind, wish = ledger.parts.wish(pool, (request,), NOTHING)
    table = ledger.parts.appraiser(pool, kind).cards(wish)
    views = ledger.pools[pool].index.views
    return frozenset(
        view.devices[bit].id
        for position, view in enumerate(views)
        for column, bit in enumerate(ledger.parts.columns(pool, kind, position))
        if table[position, column] >= 0
    )
