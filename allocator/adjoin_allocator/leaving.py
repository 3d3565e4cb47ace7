"""Who has to go by this very decision, in the counts of a pool: what they hold is on its way back.

In come a ledger and those who were found to have to go. For as long as the context lasts the ledger says of what they
hold that it is being released; then it is as before. Nobody is chosen here.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from adjoin_allocator.holders import Holding
from adjoin_allocator.ledger import Ledger
from adjoin_allocator.model import ClaimUID
from adjoin_allocator.results import Preempted


@contextmanager
def leaving(ledger: Ledger, preempted: Iterable[Preempted]) -> Iterator[None]:
    """What these hold counts as releasing meanwhile."""
    gone: dict[ClaimUID, set[int]] = {}
    for each in preempted:
        gone.setdefault(each.uid, set()).update(each.replicas)
    found = [
        (pool, holding)
        for uid in gone
        for pool, holders in ledger.holders.items()
        for holding in holders.claims.get(uid, ())
        if holding.replica.index in gone[uid] and not holding.back
    ]
    versions = {pool: ledger.pools[pool].version for pool, _ in found}
    _turn(ledger, found, back=True)
    try:
        yield
    finally:
        _turn(ledger, found, back=False)
        for pool, version in versions.items():
            ledger.pools[pool].version = version


def _turn(ledger: Ledger, holdings: Iterable[tuple[str, Holding]], back: bool) -> None:
    for pool, holding in holdings:
        if holding.mask:
            ledger.pools[pool].claimed(holding.position, holding.mask, not back, add=False)
            ledger.pools[pool].claimed(holding.position, holding.mask, back, add=True)
        for bit, share in holding.parts:
            ledger.parts.hold(pool, holding.position, bit, share, not back, add=False)
            ledger.parts.hold(pool, holding.position, bit, share, back, add=True)
