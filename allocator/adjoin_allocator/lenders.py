"""What another tenant would have to give back so that a claim fits: what it holds beyond its own quota.

In come a unit that has no place, the accounts of its pool, and who else waits; out comes a sentence, or None. Whose
claims would have to go is asked as preemption asks it, as if the pool's rules let every tenant take back what others
borrow; nobody is sent away. The unit is placed in the ledger without them to prove it, and nothing is said when
somebody who waits before it, or a claim of the tenant that gives, could take what comes free instead.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import takewhile

from adjoin_allocator.holds import Holds
from adjoin_allocator.model import Claim, PreemptionRules
from adjoin_allocator.place import Ask, Placer
from adjoin_allocator.preemption import Search
from adjoin_allocator.results import Code
from adjoin_allocator.tariff import fits
from adjoin_allocator.tenancy import Accounts, Cost, added, amount
from adjoin_allocator.terms import Reclaim
from adjoin_allocator.units import Served, Unit
from adjoin_allocator.victims import Choice, Field, Loss

RULES = PreemptionRules(within_tenant=False, reclaim=Reclaim.ANY)
"""Every tenant may take back what others borrow."""

NAMED = 3
"""So many claims are named at most: an answer that needs more is none that people could act on."""

Rivals = Callable[[str], Iterable[Ask]]
"""By tenant that gives something back who may take it before the unit."""


class Lenders:
    """What quotas and other tenants would have to be otherwise, during one decision."""

    def __init__(self, placer: Placer, holds: Holds, accounts: Callable[[str], Accounts], now: float) -> None:
        """`accounts` are those of a pool by name, as they stand when they are asked for."""
        self._placer = placer
        self._holds = holds
        self._accounts = accounts
        self._now = now
        self._refused: dict[str, dict[Claim, Cost]] = {}
        """By pool who was refused for a quota, in the order of service, and what it would have cost."""

    def note(self, claim: Claim, need: Cost, served: Served) -> None:
        """A claim was refused so much for its quota, if it was."""
        if any(reason.code is Code.QUOTA_EXCEEDED for reason in served.reasons):
            self._refused.setdefault(claim.pool, {}).setdefault(claim, need)

    def remedy(self, claim: Claim, need: Cost, short: Sequence[str]) -> str | None:
        """What would lift the quotas that are short: what another tenant borrows of what this one might, or a greater
        quota. None when somebody who was refused before would take that.
        """
        pool, accounts = claim.pool, self._accounts(claim.pool)
        before = [*takewhile(lambda each: each[0] is not claim, self._refused.get(pool, {}).items())]
        lent = None if before else accounts.lent(claim.tenant, need, short)
        if lent is not None:
            giver, lacking = lent
            if not any(other.tenant == giver and other.pool == pool for other in self._placer.ledger.waiting):
                return f"fits once tenant {giver} gives back {_told(lacking)} that it borrows"
        earlier = [cost for other, cost in before if other.tenant == claim.tenant]
        if any(all(cost.get(kind, 0) <= need[kind] for kind in short) for cost in earlier):
            return None
        return accounts.remedy(claim.tenant, need, short)

    def given_back(self, unit: Unit, rivals: Rivals) -> str | None:
        """`fits once tenant batch gives back 2 gpu that it borrows (DeviceClaim night/render)`."""
        claim, pool, need, accounts = unit.claim, unit.pool, unit.need, self._accounts(unit.pool)
        others = [name for name in accounts.pool.tenants if name != claim.tenant]
        if not any(accounts.borrowed(name, kind) for name in others for kind in need):
            return None
        # Who would itself come to be above its own quota may not ask for what others have above theirs.
        if not accounts.within_quota(claim.tenant, need, {}):
            return None
        lending, bound = accounts.under(RULES), self._holds.bound(pool, claim)
        choice = _choice(self._placer, unit, Field(self._placer.ledger.holders[pool], lending, self._now, bound=bound))
        if choice is None or len(choice.losses) > NAMED or not _only_borrowed(accounts, choice):
            return None
        losses = choice.losses
        givers = sorted({loss.claim.tenant for loss in losses})
        if _taken(self._placer, unit, losses, (ask for name in givers for ask in rivals(name))):
            return None
        told = []
        for name in givers:
            mine = sorted((loss for loss in losses if loss.claim.tenant == name), key=lambda loss: loss.claim.uid)
            lost = _told(added(*(loss.cost for loss in mine)))
            told.append(f"tenant {name} gives back {lost} that it borrows ({', '.join(map(_named, mine))})")
        return f"fits once {' and '.join(told)}"


def _told(cost: Cost) -> str:
    return " and ".join(f"{amount(milli)} {kind}" for kind, milli in sorted(cost.items()))


def _choice(placer: Placer, unit: Unit, field: Field) -> Choice | None:
    searches = [Search(placer, ask, unit.claim, unit.need, unit.least, field) for ask in unit.asks]
    plain = unit.single and not any(request.share for ask in unit.asks for request in ask.requests)
    found = [search.on_nodes() for search in searches] if plain else [searches[0].anywhere()]
    return min((choice for choice in found if choice is not None), key=lambda choice: choice.key, default=None)


def _only_borrowed(accounts: Accounts, choice: Choice) -> bool:
    """Whether every tenant gives back no more than it has beyond its quota."""
    lost: dict[str, dict[str, int]] = {}
    for loss in choice.losses:
        lost[loss.claim.tenant] = added(lost.get(loss.claim.tenant, {}), loss.cost)
    return all(
        milli <= accounts.borrowed(tenant, kind) for tenant, costs in lost.items() for kind, milli in costs.items()
    )


def _taken(placer: Placer, unit: Unit, losses: Sequence[Loss], rivals: Iterable[Ask]) -> bool:
    """Whether somebody else could take what comes free."""
    ledger, pool = placer.ledger, unit.pool
    mark = ledger.checkpoint()
    for loss in losses:
        for position, mask in loss.places:
            ledger.vacate(pool, position, mask, loss.claim.host)
        for position, bit, share in loss.parts:
            ledger.vacate_part(pool, position, bit, share, back=False)
    taken = any(fits(placer, ask) for ask in dict.fromkeys(rivals))
    ledger.roll_back(mark)
    return taken


def _named(loss: Loss) -> str:
    claim: Claim = loss.claim
    name = f"DeviceClaim {claim.namespace}/{claim.name}"
    if len(loss.replicas) == claim.replicas:
        return name
    listed = ", ".join(map(str, loss.replicas))
    return f"replica{'' if len(loss.replicas) == 1 else 's'} {listed} of {name}"
