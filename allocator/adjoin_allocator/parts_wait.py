"""Whose end would do for a part of a card: one claim that must give its devices, or its parts, back.

In come the placer, an ask for parts that was refused, the asks that wait before it, and what this decision has given to
others; out comes a sentence, or None. Each claim is tried alone, those that have least first, by placing the ask in the
ledger without it; nothing is taken in the end. Nobody is named whom somebody before it in the order could follow.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from heapq import nsmallest

from adjoin_allocator.model import Claim, ClaimUID, PlacedShare
from adjoin_allocator.place import Ask, Placer
from adjoin_allocator.tariff import fits
from adjoin_allocator.topology import bits
from adjoin_allocator.waitfor import AHEAD, Given

TRIES = 16
"""Claims that are tried."""


@dataclass(slots=True, eq=False)
class _Share:
    """What one claim has of the pool, or gives back: by node whole devices, and parts of others."""

    claim: Claim
    back: bool
    given: bool
    wholes: list[tuple[int, int]] = field(default_factory=list)
    parts: list[tuple[int, int, PlacedShare]] = field(default_factory=list)

    @property
    def amount(self) -> tuple[int, str, str]:
        """How much it is, then whose."""
        number = sum(mask.bit_count() for _, mask in self.wholes) + len(self.parts)
        return number, self.claim.namespace, self.claim.name


def nearest_part(
    placer: Placer, ask: Ask, less: str | None, ahead: Sequence[Ask], mine: ClaimUID | None, given: Given
) -> str | None:
    """What would make parts fit: what is on its way back, else less of them as `less` says, else somebody's end."""
    return _returning(placer, ask, ahead, mine) or less or _ending(placer, ask, ahead, mine, given)


def _returning(placer: Placer, ask: Ask, ahead: Sequence[Ask], mine: ClaimUID | None) -> str | None:
    """`fits when team/job has given back node-3 gpu-0 (releasing)`."""
    held = _first(placer, ask, ahead, _held(placer, ask, mine, {}, back=True))
    if held is None:
        return None
    views = placer.ledger.pools[ask.pool].index.views
    devices = {(position, bit) for position, mask in held.wholes for bit in bits(mask)}
    devices |= {(position, bit) for position, bit, _ in held.parts}
    by_node: dict[str, list[str]] = {}
    for position, bit in sorted(devices):
        by_node.setdefault(views[position].name, []).append(views[position].devices[bit].id.device)
    what = ", ".join(f"{node} {', '.join(names)}" for node, names in by_node.items())
    return f"fits when {held.claim.namespace}/{held.claim.name} has given back {what} (releasing)"


def _ending(placer: Placer, ask: Ask, ahead: Sequence[Ask], mine: ClaimUID | None, given: Given) -> str | None:
    """`fits once DeviceClaim team/job ends`."""
    held = _first(placer, ask, ahead, _held(placer, ask, mine, given, back=False))
    return None if held is None else f"fits once DeviceClaim {held.claim.namespace}/{held.claim.name} ends"


def _first(placer: Placer, ask: Ask, ahead: Sequence[Ask], shares: Sequence[_Share]) -> _Share | None:
    """The first of these without whom the ask fits, and nobody before it."""
    before = [other for other in dict.fromkeys(ahead) if other.pool == ask.pool]
    if len(before) > AHEAD:
        return None
    ledger = placer.ledger
    for held in shares:
        mark = ledger.checkpoint()
        for position, mask in held.wholes:
            (ledger.give_back if held.given else ledger.vacate)(ask.pool, position, mask)
        for position, bit, share in held.parts:
            if held.given:
                ledger.give_back_part(ask.pool, position, bit, share)
            else:
                ledger.vacate_part(ask.pool, position, bit, share, held.back)
        found = fits(placer, ask) and not any(fits(placer, other) for other in before)
        ledger.roll_back(mark)
        if found:
            return held
    return None


def _held(placer: Placer, ask: Ask, mine: ClaimUID | None, given: Given, back: bool) -> list[_Share]:
    """Who has something on open nodes with cards that the ask could have parts of, who has least first."""
    found: dict[tuple[ClaimUID, bool], _Share] = {}

    def of(claim: Claim, now: bool) -> _Share:
        known = found.get((claim.uid, now))
        if known is None:
            known = found[claim.uid, now] = _Share(claim, back, now)
        return known

    ledger = placer.ledger
    for position in _positions(placer, ask, back):
        for claim, replica, mask, parts, going in ledger.hands_and_parts(ask.pool, position):
            if going is not back or claim.uid == mine or not (mask or parts):
                continue
            if going and not claim.deleting and replica.index in claim.members:
                continue
            share = of(claim, False)
            if mask:
                share.wholes.append((position, mask))
            share.parts += [(position, bit, part) for bit, part in parts]
        for claim, mask, parts in given.get((ask.pool, position), ()):
            if claim.uid != mine:
                whole = mask & ~sum({1 << bit for bit, _ in parts})
                if whole:
                    of(claim, True).wholes.append((position, whole))
                of(claim, True).parts.extend((position, bit, share) for bit, share in parts)
    return nsmallest(TRIES, found.values(), key=lambda held: held.amount)


def _positions(placer: Placer, ask: Ask, back: bool) -> Iterator[int]:
    """Open nodes with cards that the ask could have parts of; with `back` only those where anything comes back."""
    ledger, shares = placer.ledger.pools[ask.pool], placer.ledger.parts.shares
    index = ledger.index
    wanted = [(request, shares[request.share.name]) for request in ask.requests if request.share]
    some = sorted(ledger.returning | placer.ledger.parts.returning(ask.pool)) if back else range(len(index.views))
    for position in some:
        view = index.views[position]
        if position not in index.closed and any(
            view.eligible(request.kind, request.selectors) & view.eligible(share.kind, share.selectors)
            for request, share in wanted
        ):
            yield position
