"""What a claim may take of what is there, and what happens when it finds no place.

In come units (one replica of a claim, or the members of a gang together) one after the other, in service order; out
comes for each where it is, or what is held for it and who has to go for that, or why it may not have more. Between a
quota and a place the steps are these:

1. Quota and borrowing (`tenancy`): a unit that they forbid is not placed, whatever is free.
2. A place among what is free and held for nobody, and what was promised to this claim.
3. A place with what is held for others, where that is allowed: devices promised to a claim that it could evict (which
   runs nothing yet), and devices reserved for later, if it gives them back before.
4. What it was promised earlier, as long as that is still coming: the target is kept.
5. Victims (`preemption`): what is on its way back counts as free first, so that nobody goes in vain.
6. A reservation (`reservation`): for a gang, or a replica of several devices, that has waited for `holdAfter`. There is
   one a pool at a time, for the first such claim in service order; later claims use it only if they end before it is
   needed.

A promise whose devices are gone, or with which the claim would not fit any more, is dropped. One whose devices have
been on their way back for ten minutes is kept only while nothing better can be had.

Nothing is written here: victims keep their devices until those come back in a later snapshot.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from math import inf

from adjoin_allocator.amounts import counted
from adjoin_allocator.holders import Holding, preempts
from adjoin_allocator.holds import Held, Holds
from adjoin_allocator.hosts import NOTHING as NO_HOST
from adjoin_allocator.ledger import Ledger
from adjoin_allocator.lenders import Lenders
from adjoin_allocator.model import Claim, ClaimUID, Nomination, Pool, Request
from adjoin_allocator.order import NOTHING, Portion
from adjoin_allocator.outlays import Pick, outlay, times
from adjoin_allocator.place import Placer
from adjoin_allocator.preemption import Attempt, Search
from adjoin_allocator.reservation import prospect
from adjoin_allocator.results import Code, Placement, Preempted, Reason
from adjoin_allocator.tenancy import WHOLE, Accounts, Cost, added, amount, least_cost
from adjoin_allocator.topology import bits
from adjoin_allocator.units import Served, Unit
from adjoin_allocator.victims import SAME_AGAIN, Choice, Field, may_evict

STUCK = 600.0
"""Seconds after which what is on its way back is no longer waited for if something else can be had (D13)."""


class Arbiter:
    """Tenants, promises, victims and reservations of all pools during one decision."""

    def __init__(self, placer: Placer, now: float) -> None:
        self._preempted: dict[tuple[ClaimUID, ClaimUID], set[int]] = {}
        """By victim and preemptor the replicas that go, in the order in which that was found."""
        self._placer = placer
        self._ledger: Ledger = placer.ledger
        self._now = now
        self._holds = Holds(placer.ledger)
        self._accounts: dict[str, Accounts] = {}
        self._fields: dict[str, Field] = {}
        self._hopeless: set[tuple[object, ...]] = set()
        """Units of which it is known that nobody goes for them."""
        self._refused: Cost | None = None
        """What the unit that was tried last would have cost where it fits, when its quota forbade that."""
        self._booked: dict[ClaimUID, Cost] = {}
        """By claim what this decision has given it."""
        self._done: dict[ClaimUID, set[int]] = {}
        """By claim the replicas that this decision has placed."""
        self._blocked: dict[tuple[object, ...], Reason | None] = {}
        self._outlays: dict[tuple[str, tuple[Request, ...], Pick], Cost] = {}
        self._lenders: Lenders | None = None
        self.loosened: set[str] = set()
        """Pools in which something that was held at first is held for nobody any more."""
        promised = [claim for claim in placer.ledger.waiting if claim.nominated]
        for claim in sorted(promised, key=lambda claim: (_created(claim, now), claim.uid)):
            if claim.hold is None and claim.pool in placer.ledger.pools:
                self._renew(claim)

    @property
    def preempted(self) -> tuple[Preempted, ...]:
        """Who has to go for whom."""
        return tuple(
            Preempted(victim, tuple(sorted(replicas)), preemptor)
            for (victim, preemptor), replicas in self._preempted.items()
        )

    @property
    def lenders(self) -> Lenders:
        """What quotas and other tenants would have to be otherwise."""
        if self._lenders is None:
            self._lenders = Lenders(self._placer, self._holds, self.accounts, self._now)
        return self._lenders

    def portion(self, pool: str, tenant: str) -> Portion:
        """What a tenant has of a pool, for the order of service."""
        return self.accounts(pool).portion(tenant) if pool in self._ledger.pools else NOTHING

    def accounts(self, pool: str) -> Accounts:
        """The tenants of a pool."""
        found = self._accounts.get(pool)
        if found is None:
            found = self._accounts[pool] = self._ledger.accounts(pool)
        return found

    def serve(self, unit: Unit) -> Served:
        """Finds a place for a unit, or the way to one."""
        pool, claim = unit.pool, unit.claim
        holds = self._holds.of(pool)
        mine = [held for held in holds if held.claim is claim and not held.reservation] if holds else []
        if mine:
            self._lift(mine)
        placements = self._placed(unit, unit.attempt) or self._placed_with_held(unit)
        if placements:
            self._done.setdefault(claim.uid, set()).update([one.index for one in placements])
            if mine:
                self._restore([held for held in mine if self._holds.intact(held)], mine)
            whole = unit.single or len(placements) == len(unit.indexes)
            return Served(placements) if whole else self.over_quota(claim, self.least(claim), placements)
        need = self.least(claim, unit.members) if self._refused is None else self._refused
        forbidden = self.over_quota(claim, need)
        kept = self._keep(unit, mine)
        if kept is not None:
            return kept
        promised = self._press(unit)
        if promised is not None:
            return promised
        if not forbidden.reasons:
            self._reserve(unit)
        self.lenders.note(claim, need, forbidden)
        return forbidden

    def over_quota(self, claim: Claim, cost: Cost, placements: tuple[Placement, ...] = ()) -> Served:
        """What a claim's quota says of so much more, beside what has been placed: nothing where it allows that."""
        accounts = self.accounts(claim.pool)
        short = accounts.short(claim.tenant, cost)
        if not short:
            return Served(placements)
        reason = Reason(Code.QUOTA_EXCEEDED, 0, accounts.sentence(claim.tenant, cost, short))
        return Served(placements, reasons=(reason,), remedy=self.lenders.remedy(claim, cost, short))

    def least(self, claim: Claim, members: int = 1) -> Cost:
        """What so many replicas of a claim cost at least, wherever they are placed."""
        if not self.limited(claim):
            return least_cost(claim.requests, self.accounts(claim.pool).portions)
        return times(self._outlay(claim.pool, claim.requests, min), members)

    def affordable(self, claim: Claim, requests: tuple[Request, ...], members: int = 1) -> bool:
        """Whether a claim's tenant could have so many replicas that ask this, on whichever nodes and cards."""
        if not self.limited(claim):
            return True
        cost = times(self._outlay(claim.pool, requests, max), members)
        return not self.accounts(claim.pool).short(claim.tenant, cost)

    def rooms(self, claim: Claim) -> tuple[int | None, ...]:
        """All that `affordable` depends on beside what is asked and what the pool has."""
        accounts = self.accounts(claim.pool)
        if not self.limited(claim):
            return ()
        return tuple(accounts.room(claim.tenant, name.name) for name in accounts.pool.devices)

    def _outlay(self, pool: str, requests: tuple[Request, ...], pick: Pick) -> Cost:
        key = (pool, requests, pick)
        found = self._outlays.get(key)
        if found is None:
            found = self._outlays[key] = outlay(self._placer, pool, requests, pick)
        return found

    def settle(self, claim: Claim, missing: Iterable[int]) -> None:
        """All of a claim has been served, and these replicas have no place: what was promised to others is free."""
        left, holds = set(missing), self._holds.of(claim.pool)
        for held in list(holds) if holds else ():
            if held.claim is claim and held.nominations and not left & {one.index for one in held.nominations}:
                self._withdraw(held)

    def rebook(self, claim: Claim, placements: Iterable[Placement]) -> None:
        """The batch has changed what this decision gives a claim: all of it is this."""
        cost, accounts = self._cost(placements), self.accounts(claim.pool)
        accounts.give(claim.tenant, self._booked.get(claim.uid, {}), -1)
        accounts.give(claim.tenant, cost)
        self._booked[claim.uid] = cost

    def limited(self, claim: Claim) -> bool:
        """Whether a quota stands over a claim: then no claim takes another one's place but through `serve`."""
        return self.accounts(claim.pool).limited(claim.tenant)

    def standing(self, claim: Claim, nominated: Iterable[Nomination]) -> tuple[Nomination, ...]:
        """Those of a claim's promises that still stand, when all claims have been served."""
        held = {one for held in self._holds.of(claim.pool) if held.claim is claim for one in held.nominations}
        return tuple(one for one in nominated if one in held)

    def blocked(self, unit: Unit) -> Reason | None:
        """Who keeps a unit waiting by what is held for them; None when it would not fit with that either."""
        pool, claim = unit.pool, unit.claim
        others = [held for held in self._holds.of(pool) if held.claim is not claim and held.taken]
        if not others:
            return None
        key = (unit.asks, claim.uid if not unit.single else "", tuple(map(id, others)))
        if key not in self._blocked:
            mark = self._ledger.checkpoint()
            self._holds.open(others)
            placements = unit.least()
            self._ledger.roll_back(mark)
            self._blocked[key] = None if placements is None else self._held_for(pool, others, placements)
        return self._blocked[key]

    def lift(self, claim: Claim) -> bool:
        """Lets a claim have what is held for it, until the ledger rolls back: for its reasons that is free. Whether
        there is anything.
        """
        mine = [held for held in self._holds.of(claim.pool) if held.claim is claim and held.taken]
        self._holds.open(mine)
        return bool(mine)

    def close(self) -> Mapping[str, Mapping[str, int]]:
        """Ends the decision; by pool and device name how many free devices are held."""
        return self._holds.lift()

    # Quota

    def _placed(self, unit: Unit, attempt: Attempt) -> tuple[Placement, ...] | None:
        """Places a unit within its tenant's quota."""
        accounts, tenant = self.accounts(unit.pool), unit.claim.tenant
        self._refused = None
        if accounts.short(tenant, unit.need):
            return None
        mark = self._ledger.checkpoint()
        placements = attempt()
        if placements is None:
            return None
        cost = self._ledger.cost_since(mark) or self._cost(placements)
        if accounts.short(tenant, cost):
            self._ledger.roll_back(mark)
            self._refused = self._cost(placements)
            placements = self._placed_with_less(unit)
            if placements is None:
                return None
            self._refused, cost = None, self._cost(placements)
        accounts.give(tenant, cost)
        booked = self._booked.get(unit.claim.uid)
        self._booked[unit.claim.uid] = added(booked, cost) if booked else cost
        return tuple(placements)

    def _placed_with_less(self, unit: Unit) -> Sequence[Placement] | None:
        """Places as much of a unit as its quota allows: in a way that costs less, fewer members of a gang, `all` of a
        node that has not too many.
        """
        accounts, tenant = self.accounts(unit.pool), unit.claim.tenant
        mark = self._ledger.checkpoint()
        for attempt in unit.lesser(lambda cost: not accounts.short(tenant, cost)):
            placements = attempt()
            if placements is not None:
                if not accounts.short(tenant, self._cost(placements)):
                    return placements
                self._ledger.roll_back(mark)
        self._take_too_many(unit)
        placements = unit.least()
        self._ledger.roll_back(mark)
        if placements is None or accounts.short(tenant, self._cost(placements)):
            return None
        for placement in placements:
            self._ledger.take_placement(unit.pool, placement, unit.claim)
        return placements

    def _take_too_many(self, unit: Unit) -> None:
        """Takes what is free on nodes where `all` would be more than the quota allows, however it is served."""
        if not any(request.all_devices for ask in unit.asks for request in ask.requests):
            return
        ledger, accounts = self._ledger.pools[unit.pool], self.accounts(unit.pool)
        for position, free in enumerate(ledger.free):
            if not free:
                continue
            costs = []
            for ask in unit.asks:
                cost: dict[str, int] = {}
                for request, eligible in zip(ask.requests, self._placer.sort(ask, position).eligible, strict=True):
                    mine = least_cost((request,), accounts.portions)
                    if request.all_devices:
                        mine = self._ledger.holders[unit.pool].cost(position, eligible)
                    cost[request.kind] = cost.get(request.kind, 0) + mine.get(request.kind, 0)
                costs.append(cost)
            if all(accounts.short(unit.claim.tenant, cost) for cost in costs):
                self._ledger.take(unit.pool, position, free)

    def _cost(self, placements: Iterable[Placement]) -> dict[str, int]:
        """What placements cost their tenant."""
        return self._ledger.cost(device for placement in placements for device in placement.devices)

    # What is held

    def _renew(self, claim: Claim) -> None:
        """Holds again what a claim's status says is held for it, as far as that is still so."""
        usable = [one for one in claim.nominated if one.index in self._ledger.lacking[claim.uid]]
        groups = [[one] for one in usable] if claim.gang_min is None else [usable]
        for group in groups:
            meant = self._coming(claim, group) if group else None
            if meant is not None:
                cost = self._ledger.cost(device for one in group for device in one.devices)
                self._promise(Held(claim, claim.pool, meant, cost, tuple(group)))

    def _coming(self, claim: Claim, nominations: Sequence[Nomination]) -> dict[int, int] | None:
        """By position the devices of a promise; None when one is gone, held for others, or in hands that keep it."""
        ledger = self._ledger.pools[claim.pool]
        meant: dict[int, int] = {}
        bound = self._holds.bound(claim.pool)
        for one in nominations:
            for device in one.devices:
                found = self._placer.nodes.locate(device.id)
                if found is None or found[0] is not ledger.index:
                    return None
                _, position, bit = found
                mask = 1 << bit
                view = ledger.index.views[position]
                there = view.name == one.node and position not in ledger.index.closed
                ours = view.shape.usable(ledger.open[position] | ledger.back(position)) & view.offered & mask
                if not there or not ours or bound.get(position, 0) & mask or meant.get(position, 0) & mask:
                    return None
                meant[position] = meant.get(position, 0) | mask
        return meant

    def _promise(self, held: Held) -> None:
        self._holds.put(held)
        self.accounts(held.pool).promise(held.claim.tenant, held.cost)

    def _withdraw(self, held: Held) -> None:
        self._holds.drop(held)
        self._freed(held)
        self.accounts(held.pool).promise(held.claim.tenant, held.cost, -1)

    def _freed(self, held: Held) -> None:
        """What was found hopeless may no longer be so, and who has been served might have had it."""
        self.loosened.add(held.pool)
        self._hopeless.clear()
        self._field(held.pool).touched += held.meant

    def _lift(self, mine: Sequence[Held]) -> None:
        self._holds.open(mine)
        for held in mine:
            self.accounts(held.pool).promise(held.claim.tenant, held.cost, -1)

    def _restore(self, kept: Sequence[Held], lifted: Sequence[Held]) -> None:
        """Of what was lifted, some is held again and the rest is not."""
        for held in lifted:
            if held in kept:
                self._holds.shut([held])
                self.accounts(held.pool).promise(held.claim.tenant, held.cost)
            else:
                held.taken = {}
                self._holds.drop(held)
                self._freed(held)

    def _placed_with_held(self, unit: Unit) -> tuple[Placement, ...] | None:
        """Places a unit with what is held for others, where that is allowed."""
        others = [held for held in self._holds.of(unit.pool) if held.taken and self._may_use(unit, held)]
        if not others:
            return None
        accounts, promised = self.accounts(unit.pool), [held for held in others if not held.reservation]
        mark = self._ledger.checkpoint()
        self._holds.open(others)
        for held in promised:
            accounts.promise(held.claim.tenant, held.cost, -1)
        placements = self._placed(unit, unit.least)
        if placements is None:
            self._ledger.roll_back(mark)
        for held in promised:
            accounts.promise(held.claim.tenant, held.cost)
        if placements is None:
            return None
        for held in others:
            if held.reservation or self._holds.intact(held):
                self._holds.shut([held])
            else:
                held.taken = {}
                self._withdraw(held)
        return placements

    def _may_use(self, unit: Unit, held: Held) -> bool:
        claim, pool_field = unit.claim, self._field(held.pool)
        if held.claim is claim:
            return held.reservation
        if held.reservation:
            ends = None if claim.max_runtime is None else self._now + claim.max_runtime
            return ends is not None and ends <= held.needed_at < inf
        # Nobody is sent away for what somebody else then takes in the same decision.
        if held.fresh or not held.claim.preemptible or not may_evict(pool_field, claim, held.claim):
            return False
        if pool_field.one_tenant(claim, held.claim):
            return True
        accounts, tenant = pool_field.accounts, held.claim.tenant
        quota = accounts.pool.tenants[tenant].quota if tenant in accounts.pool.tenants else {}
        above = any(accounts.after(tenant, kind, {}, {}) > quota[kind] * WHOLE for kind in unit.need if kind in quota)
        return above and accounts.within_quota(claim.tenant, unit.need, {})

    def _keep(self, unit: Unit, mine: Sequence[Held]) -> Served | None:
        """What was promised to a unit, if it still leads to a place."""
        done = self._done.get(unit.claim.uid, set())
        # What was promised to a replica that has found another place is the next one's.
        own = [held for held in mine if _indexes(held) & set(unit.indexes)]
        own += [held for held in mine if _indexes(held) <= done]
        useful = [held for held in own if self._holds.intact(held) and self._leads(unit, held)]
        if not useful:
            rest = [held for held in mine if held not in own and self._holds.intact(held)]
            self._restore(rest, mine)
            return None
        held = useful[0]
        rest = [other for other in mine if other is not held and self._holds.intact(other)]
        if self._stuck(held):
            self._restore(rest, mine)
            better = self._press(unit)
            if better is not None:
                return better
            held.nominations = _renamed(held, unit.indexes)
            self._promise(held)
        else:
            self._restore([held, *rest], mine)
            held.nominations = _renamed(held, unit.indexes)
        return Served(nominated=held.nominations, reasons=(self._waits_for(held),))

    def _leads(self, unit: Unit, held: Held) -> bool:
        """Whether the unit has a place once what it was promised has come."""
        if not self.accounts(held.pool).affords(unit.claim.tenant, held.cost, {}):
            return False
        mark = self._ledger.checkpoint()
        for position, mask in held.meant.items():
            self._let_go(held.pool, position, mask)
        placements = unit.least()
        self._ledger.roll_back(mark)
        return placements is not None

    def _stuck(self, held: Held) -> bool:
        """Whether something of it is on its way back for too long."""
        return any(
            holding.touched & mask and self._late(holding)
            for position, mask in held.meant.items()
            for holding in self._ledger.holders[held.pool].nodes.get(position, ())
        )

    def _late(self, holding: Holding) -> bool:
        since = _since(holding)
        return holding.back and since is not None and self._now - since >= STUCK

    # Victims

    def _field(self, pool: str) -> Field:
        found = self._fields.get(pool)
        if found is None:
            found = self._fields[pool] = Field(self._ledger.holders[pool], self.accounts(pool), self._now)
        return found

    def _press(self, unit: Unit) -> Served | None:
        """Has others make room for a unit; None when nobody may, or when it only has to wait for what is coming."""
        pool, claim, need = unit.pool, unit.claim, unit.need
        if not preempts(self.accounts(pool).pool):
            return None
        key = (unit.asks, claim.tenant, claim.priority, self._apart(unit))
        if key in self._hopeless:
            return None
        pool_field = self._field(pool)
        pool_field.bound = self._holds.bound(pool)
        mark = self._ledger.checkpoint()
        self._vacate_coming(pool)
        affordable = pool_field.accounts.affords(claim.tenant, need, {})
        choice: Choice | None = None
        coming: Sequence[Placement] | None = None
        if affordable:
            baseline = self._ledger.checkpoint()
            coming = unit.least()
            self._ledger.roll_back(baseline)
        if coming is None:
            choice = self._choose(unit, need, pool_field, affordable)
        self._ledger.roll_back(mark)
        if coming is not None:
            meant = self._masks(pool, coming)
            if self._mine(claim, meant):
                return self._nominate(unit, coming, meant)
        if choice is None:
            self._hopeless.add(key)
            return None
        self._hopeless.clear()
        pool_field.record(choice)
        for loss in choice.losses:
            self._preempted.setdefault((loss.claim.uid, claim.uid), set()).update(loss.replicas)
        return self._nominate(unit, choice.placements, self._masks(pool, choice.placements))

    def _choose(self, unit: Unit, need: Cost, pool_field: Field, affordable: bool) -> Choice | None:
        least, count = unit.least, unit.countable
        searches = [Search(self._placer, ask, unit.claim, need, least, pool_field, count) for ask in unit.asks]
        plain = unit.single and not unit.divides
        choices = [search.on_nodes() for search in searches] if plain else []
        # A look at a node's devices tells neither what a pod needs beside them nor who has parts of them.
        divided = self._ledger.parts.prices(unit.pool) or unit.claim.host != NO_HOST
        if not plain or not affordable or (divided and not any(choices)):
            choices.append(searches[0].anywhere())
        return min((choice for choice in choices if choice is not None), key=lambda choice: choice.key, default=None)

    def _apart(self, unit: Unit) -> str:
        """A unit with victims of its own, or with members, is like no other."""
        alone = unit.single and unit.claim.uid not in self._ledger.holders[unit.pool].preemptors
        return "" if alone else unit.claim.uid

    def _vacate_coming(self, pool: str) -> None:
        """What if all that is on its way back had come; but for what is held for others, or is late."""
        ledger, holders = self._ledger.pools[pool], self._ledger.holders[pool]
        bound, evicted = self._holds.bound(pool), self._field(pool).evicted
        for position in ledger.returning:
            late = 0
            for holding in holders.nodes.get(position, ()):
                late |= holding.touched if self._late(holding) else 0
            self._let_go(pool, position, ledger.back(position) & ~bound.get(position, 0) & ~late)
        # Of cards that others keep parts of, what somebody gives back comes too.
        for position in sorted(self._ledger.parts.returning(pool)):
            wholly = ledger.back(position) | bound.get(position, 0)
            for holding in holders.nodes.get(position, ()):
                for bit, share in holding.parts if holding.back and not self._late(holding) else ():
                    if not wholly >> bit & 1:
                        self._ledger.vacate_part(pool, position, bit, share, back=True)
        for uid, indexes in evicted.items():
            for holding in holders.claims[uid]:
                if holding.replica.index in indexes:
                    mask = holding.mask & ~bound.get(holding.position, 0)
                    self._ledger.vacate(pool, holding.position, mask, holding.claim.host)
                    for bit, share in holding.parts:
                        if not bound.get(holding.position, 0) >> bit & 1:
                            self._ledger.vacate_part(pool, holding.position, bit, share, back=False)

    def _let_go(self, pool: str, position: int, mask: int) -> None:
        """What if devices that are on their way back had come, with what pods that are still there need beside them."""
        for holding in self._ledger.holders[pool].nodes.get(position, ()):
            if not holding.back:
                continue
            if holding.mask & mask:
                host = holding.claim.host if holding.replica.bound else NO_HOST
                self._ledger.vacate(pool, position, holding.mask & mask, host)
            for bit, share in holding.parts:
                if mask >> bit & 1:
                    self._ledger.vacate_part(pool, position, bit, share, back=True)
        self._ledger.vacate(pool, position, mask)

    def _mine(self, claim: Claim, meant: Mapping[int, int]) -> bool:
        """Whether somebody was evicted for this claim who gives back some of these devices."""
        for position, mask in meant.items():
            for holding in self._ledger.holders[claim.pool].nodes.get(position, ()):
                if not holding.touched & mask:
                    continue
                if self._gives_way(holding, claim):
                    return True
        return False

    def _gives_way(self, holding: Holding, claim: Claim) -> bool:
        """Whether a replica was evicted for this claim, now or a while ago."""
        if holding.replica.index in self._preempted.get((holding.claim.uid, claim.uid), ()):
            return True
        return holding.back and any(
            each.by == claim.uid and self._now - each.at < SAME_AGAIN for each in holding.claim.evictions
        )

    def _nominate(self, unit: Unit, placements: Sequence[Placement], meant: Mapping[int, int]) -> Served:
        nominations = tuple(Nomination(one.index, one.node, one.devices) for one in placements)
        held = Held(unit.claim, unit.pool, meant, self._cost(placements), nominations, fresh=True)
        self._promise(held)
        return Served(nominated=nominations, reasons=(self._waits_for(held),))

    # Reservations

    def _reserve(self, unit: Unit) -> None:
        """Keeps others from what a unit that has waited long will need."""
        pool: Pool = self._ledger.pools[unit.pool].index.pool
        waited = 0.0 if unit.claim.created is None else self._now - unit.claim.created
        if pool.hold_after is None or waited < pool.hold_after or not unit.several:
            return
        if any(held.reservation for held in self._holds.of(pool.name)):
            return
        bound, holders = self._holds.bound(pool.name), self._ledger.holders[pool.name]
        mark = self._ledger.checkpoint()
        self._vacate_coming(pool.name)
        found = prospect(self._ledger, pool.name, holders, bound, self._now, unit.least)
        self._ledger.roll_back(mark)
        if found is not None:
            meant, cost = self._masks(pool.name, found.placements), self._cost(found.placements)
            self._holds.put(Held(unit.claim, pool.name, meant, cost, needed_at=found.at))

    # Words

    def _waits_for(self, held: Held) -> Reason:
        """`1 node: 4 of 8 devices are still to be given back by team/low`."""
        ledger, holders = self._ledger.pools[held.pool], self._ledger.holders[held.pool]
        names: dict[str, float | None] = {}
        evicted = self._field(held.pool).evicted
        waiting, total = 0, 0
        for position, mask in sorted(held.meant.items()):
            total += mask.bit_count()
            shape = ledger.index.views[position].shape
            # Partitions that a driver publishes wait for whoever has something of their card.
            near = shape.rivals(mask) if shape.counters is not None else mask
            coming = ledger.held(position) & ~held.taken.get(position, 0) & mask
            for holding in holders.nodes.get(position, ()):
                going = holding.back or holding.replica.index in evicted.get(holding.claim.uid, ())
                # Who has another part of the card keeps it.
                if holding.touched & near and (going or holding.mask & mask):
                    since = _since(holding) if holding.back else None
                    names[f"{holding.claim.namespace}/{holding.claim.name}"] = since
                    if near != mask:
                        coming |= shape.rivals(holding.touched) & mask
            waiting += coming.bit_count()
        meant = f"{counted(total, 'device')} that {'is' if total == 1 else 'are'} held for it"
        message = f"{waiting} of {meant} {'is' if waiting == 1 else 'are'} still being released"
        if not waiting:
            # Its own devices are free: others give way for the quota, or for room on the host.
            names = self._giving_way(held.claim)
            meant = f"{counted(total, 'device')} {'is' if total == 1 else 'are'} held for it"
            message = f"{meant}; quota or host resources are still to be given back"
        late = [since for since in names.values() if since is not None and self._now - since >= STUCK]
        if names:
            message += f" by {', '.join(sorted(names))}"
        if late:
            message += f", for {int(self._now - min(late)) // 60} minutes by now"
        return Reason(Code.DEVICE_RELEASING, len(held.meant), message)

    def _giving_way(self, claim: Claim) -> dict[str, float | None]:
        """The claims that give something back for this one, and since when."""
        return {
            f"{holding.claim.namespace}/{holding.claim.name}": _since(holding) if holding.back else None
            for _, there in sorted(self._ledger.holders[claim.pool].nodes.items())
            for holding in there
            if self._gives_way(holding, claim)
        }

    def _held_for(self, pool: str, others: Sequence[Held], placements: Sequence[Placement]) -> Reason:
        used = self._masks(pool, placements)
        keepers: list[str] = []
        nodes: set[int] = set()
        count: dict[str, int] = {}
        views = self._ledger.pools[pool].index.views
        for held in others:
            here = {at: mask & used.get(at, 0) for at, mask in held.taken.items() if mask & used.get(at, 0)}
            if here:
                what = "reserved" if held.reservation else "promised"
                keepers.append(f"{held.claim.namespace}/{held.claim.name} ({what})")
                nodes |= here.keys()
                for at, mask in here.items():
                    for bit in bits(mask):
                        kind = views[at].devices[bit].kind
                        count[kind] = count.get(kind, 0) + 1
        listed = ", ".join(f"{amount(number * WHOLE)} {kind}" for kind, number in sorted(count.items()))
        message = f"would fit with {listed} held for {', '.join(keepers)}"
        return Reason(Code.HELD_FOR_OTHER, len(nodes), message)

    def _masks(self, pool: str, placements: Iterable[Placement]) -> dict[int, int]:
        """By position the devices of placements."""
        masks: dict[int, int] = {}
        for placement in placements:
            for device in placement.devices:
                found = self._placer.nodes.locate(device.id)
                assert found is not None, f"a device was placed in {pool} that is not there"
                _, position, bit = found
                masks[position] = masks.get(position, 0) | 1 << bit
        return masks


def _indexes(held: Held) -> set[int]:
    return {one.index for one in held.nominations}


def _renamed(held: Held, indexes: Sequence[int]) -> tuple[Nomination, ...]:
    """The promise under the indexes that have no place."""
    if _indexes(held) <= set(indexes):
        return held.nominations
    return tuple(replace(one, index=index) for one, index in zip(held.nominations, indexes, strict=False))


def _since(holding: Holding) -> float | None:
    """Since when a replica is on its way back, as far as that is known."""
    if holding.replica.releasing_since is not None:
        return holding.replica.releasing_since
    return max((each.at for each in holding.claim.evictions), default=None)


def _created(claim: Claim, now: float) -> float:
    return now if claim.created is None else claim.created
