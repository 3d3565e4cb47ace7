"""The best place for a replica where places are told apart by prices: divided cards, hosts with limits.

In come the placer and an ask, out comes a `Spot` or the obstacle, as from `Placer.best`, to which pools without prices
are handed on. Nothing is taken here.

Prices are part of what is left behind: they are compared after distances and whole islands. Where neither can differ,
since one card or part is asked for, or all cards are wired alike, the cheapest place is looked up in arrays. Else every
state of nodes is weighed as without prices, at its cheapest node; and where parts are chosen together with other
devices, each node is a state of its own, in which every card has its price.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import combinations

from adjoin_allocator.cost import BALANCED, ISLAND_SCOPES, LOAD_UNIT, Part, Signature, parts_of
from adjoin_allocator.demand import Demand, Stake
from adjoin_allocator.fit import STATE_LIMIT, Fit, Misfit, Obstacle
from adjoin_allocator.fractions import Appraiser
from adjoin_allocator.model import PlacedShare, Request
from adjoin_allocator.nodes import NodeView, Sort, State
from adjoin_allocator.place import Ask, Effort, Placer, Spot
from adjoin_allocator.sharing import MILLI
from adjoin_allocator.stock import Booleans, Wish
from adjoin_allocator.terms import Profile, Scope, Strategy
from adjoin_allocator.topology import bits

SORTS = 16_384
"""How many sorts of nodes with parts are remembered."""

_PLAIN = (BALANCED, parts_of(Profile.COMPUTE, Strategy.LEAST_FRAGMENTATION))
"""Orders of the objective in which neither the load of a node nor neighbours count."""

Found = tuple[tuple[int, ...], float, int, Fit]
"""Objective, load and position of a choice."""


def best(placer: Placer, ask: Ask, effort: Effort, demand: Demand = ()) -> Spot | Obstacle:
    """The best place for one replica, or what kept it from every node."""
    parts = placer.ledger.parts
    if not _priced_at_all(placer, ask):
        return placer.best(ask, effort, demand)
    kind, wish = parts.wish(ask.pool, ask.requests, ask.host)
    appraiser = parts.appraiser(ask.pool, kind)
    lone = simple(placer, ask, kind)
    if ask.divides:
        for among, apart in _considerate(placer, ask):
            trial = Effort(effort.states, None if effort.known is None else set(effort.known))
            rather = replace(wish, apart=apart)
            found = (
                _cheapest(placer, ask, kind, appraiser, rather, among)
                if lone
                else _mixed(placer, ask, trial, appraiser, rather, among)
            )
            if isinstance(found, Spot):
                effort.states, effort.known = trial.states, trial.known
                return found
        if not lone:
            return _mixed(placer, ask, effort, appraiser, wish)
    return (
        _cheapest(placer, ask, kind, appraiser, wish)
        if lone
        else _weighed(placer, ask, effort, demand, appraiser, wish)
    )


def _considerate(placer: Placer, ask: Ask) -> Iterator[tuple[Booleans | None, bool]]:
    """Where parts are looked for first: on which nodes, and whether away from cards whose holders want quiet
    neighbours. Loaded nodes, and sooner these than such cards, give parts only where nothing else can.
    """
    calm = placer.ledger.hosts.rooms(placer.ledger.pools[ask.pool].index).calm(ask.host)
    if placer.ledger.parts.quiet(ask.pool):
        if calm is not None:
            yield calm, True
        yield None, True
    if calm is not None:
        yield calm, False


def fits(placer: Placer, ask: Ask) -> bool:
    """Whether one replica fits anywhere."""
    if not _priced_at_all(placer, ask):
        return placer.fits(ask)
    return isinstance(best(placer, ask, Effort()), Spot)


def _priced_at_all(placer: Placer, ask: Ask) -> bool:
    """Whether prices tell places apart. Arrays of cards do not know counters: where devices share some, whole ones are
    chosen without prices."""
    if not placer.ledger.parts.prices(ask.pool):
        return False
    counted = placer.ledger.pools[ask.pool].index.counted
    return not counted or ask.divides


def simple(placer: Placer, ask: Ask, kind: str) -> bool:
    """Whether only prices tell places apart."""
    if ask.signature.order not in _PLAIN:
        return False
    if not ask.requests:
        return True
    if len(ask.requests) > 1 or ask.affinity or ask.requests[0].all_devices:
        return False
    request = ask.requests[0]
    return placer.ledger.parts.alike(ask.pool, kind, request.count > 1 and not request.same_device)


def _cheapest(
    placer: Placer, ask: Ask, kind: str, appraiser: Appraiser, wish: Wish, among: Booleans | None = None
) -> Spot | Obstacle:
    choice = appraiser.best(wish, among)
    if choice is None:
        return Obstacle.COUNT
    columns = placer.ledger.parts.columns(ask.pool, kind, choice.position)
    mask = sum(1 << columns[column] for column in choice.columns)
    masks = (mask,) if ask.requests else ()
    return Spot(choice.position, Fit((choice.cost,), masks, mask, 0))


def _weighed(
    placer: Placer, ask: Ask, effort: Effort, demand: Demand, appraiser: Appraiser, wish: Wish
) -> Spot | Obstacle:
    """As without prices, with the cheapest node of each state in place of the first."""
    ledger, fitter, form = placer.ledger.pools[ask.pool], placer.fitter, ask.form
    # How often several cards are wanted at once is in the prices; beside them only what waits counts.
    waiting = tuple(replace(wanted, usual=0) for wanted in demand if wanted.waiting)
    question = replace(ask.question, demand=waiting) if waiting else ask.question
    prices, room = appraiser.tariff(replace(wish, part=None, share="", together=False))
    states: dict[State, list[int]] = {}
    for position, view in enumerate(ledger.index.views):
        if position not in ledger.index.closed:
            state = (view.shape, placer.nodes.sort(view, question), ledger.open[position])
            states.setdefault(state, []).append(position)
    found: Found | None = None
    obstacle = Obstacle.COUNT
    bounds: list[tuple[Found, State]] = []
    for state, positions in states.items():
        answer = fitter.bound(form, state) if waiting else fitter.fit(form, state)
        if effort.spend(state, answer.states) > STATE_LIMIT:
            return effort.over()
        if isinstance(answer, Misfit):
            if answer.obstacle is Obstacle.LIMIT:
                return effort.over()
            if answer.obstacle is Obstacle.LINES and obstacle is Obstacle.COUNT:
                obstacle = Obstacle.LINES
            continue
        roomy = [(prices[position], position) for position in positions if room[position]]
        if not roomy:
            obstacle = Obstacle.HOST
            continue
        price, position = min(roomy)
        shape, _, free = state
        load = 1 - free.bit_count() / shape.size
        entry = (_priced(form.signature, answer.objective, int(price)), load, position, answer)
        if not answer.exact:
            bounds.append((entry, state))
        elif found is None or entry[:3] < found[:3]:
            found = entry
    for entry, state in sorted(bounds, key=lambda each: each[0][:3]):
        if found is not None and entry[:3] > found[:3]:
            break
        fit = fitter.weigh(form, state, entry[3])
        price = entry[0][_place(form.signature)]
        exact = (_priced(form.signature, fit.objective, price), entry[1], entry[2], fit)
        if found is None or exact[:3] < found[:3]:
            found = exact
    return obstacle if found is None else Spot(found[2], found[3])


def _place(signature: Signature) -> int:
    """Where the price stands in the objective: after what others need and whole islands, before the whole node."""
    return signature.place(Part.WHOLE) + ISLAND_SCOPES.index(Scope.NODE)


def _priced(signature: Signature, objective: tuple[int, ...], price: int) -> tuple[int, ...]:
    at = _place(signature)
    return (*objective[:at], price, *objective[at:])


def _mixed(
    placer: Placer, ask: Ask, effort: Effort, appraiser: Appraiser, wish: Wish, among: Booleans | None = None
) -> Spot | Obstacle:
    """Parts together with other devices, or several parts whose distances matter, or where the emptiest card is sought:
    then who shares a card, and how much of it is in use, stand in place of its price.
    """
    ledger, fitter, parts = placer.ledger.pools[ask.pool], placer.fitter, placer.ledger.parts
    form = of_cards(placer, ask).form
    wishes = {
        at: parts.wish(ask.pool, (request,), ask.host)
        for at, request in enumerate(ask.requests)
        if request.share is not None
    }
    if wish.apart:
        wishes = {at: (kind, replace(each, apart=True)) for at, (kind, each) in wishes.items()}
    tables = {at: parts.appraiser(ask.pool, kind).cards(each) for at, (kind, each) in wishes.items()}
    room = appraiser.stock.room(wish) if among is None else appraiser.stock.room(wish) & among
    order = ask.signature.order
    lonely = Part.BUSY in order or ask.signature.spread
    limits = {each.share: parts.appraiser(ask.pool, kind).stock.openings(each.share) for kind, each in wishes.values()}
    openings = {name: left for name, left in limits.items() if left is not None}
    found: Found | None = None
    obstacle = Obstacle.COUNT
    known: dict[State, Fit | Misfit] = {}
    for position, view in enumerate(ledger.index.views):
        if not room[position]:
            continue
        prices: dict[int, int] = {}
        eligible, free, enough = [], ledger.open[position], True
        for at, request in enumerate(ask.requests):
            if at in wishes:
                kind, each = wishes[at]
                columns, row = parts.columns(ask.pool, kind, position), tables[at][position]
                mine = {columns[column]: int(row[column]) for column in range(len(columns)) if row[column] >= 0}
                if lonely:
                    mine = {bit: parts.crowd(ask.pool, kind, position, bit) for bit in mine}
                eligible.append(sum(1 << bit for bit in mine))
                enough = enough and len(mine) >= each.parts
                for bit, price in mine.items():
                    prices[bit] = max(price, prices.get(bit, 0))
            else:
                mask = view.eligible(request.kind, request.selectors)
                taken = mask & ~ledger.free[position]
                enough = enough and not (request.all_devices and taken)
                eligible.append(mask & ~taken)
        if not enough:
            continue
        for bit in prices:
            free |= 1 << bit
        load = _load(placer, ask, view, position) if Part.NODE_LOAD in order else 1 - free.bit_count() / view.shape.size
        for allowed in _openings(ask, openings, ledger.free[position] | ledger.lent(position), tuple(eligible)):
            state = (view.shape, _sort(placer, ask, view, allowed, prices), free)
            answer = known.get(state)
            if answer is None:
                answer = fitter.bound(form, state)
                if isinstance(answer, Fit) and not answer.exact:
                    answer = fitter.weigh(form, state, answer)
                known[state] = answer
            if effort.spend(state, answer.states) > STATE_LIMIT:
                return effort.over()
            if isinstance(answer, Fit):
                objective = _loaded(ask, answer.objective, load) if Part.NODE_LOAD in order else answer.objective
                entry = (objective, load, position, answer)
                if found is None or entry[:3] < found[:3]:
                    found = entry
            elif answer.obstacle is Obstacle.LIMIT:
                return effort.over()
            elif answer.obstacle is Obstacle.LINES:
                obstacle = Obstacle.LINES
    return obstacle if found is None else Spot(found[2], found[3])


def _openings(ask: Ask, openings: Mapping[str, int], free: int, eligible: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
    """By request the devices that it may have: once, or, where more whole cards could be divided than a share may
    still divide, once for every choice of those that it does.
    """
    for name, left in openings.items():
        mine = [request.share is not None and request.share.name == name for request in ask.requests]
        asked = sum(request.count // copies(request) for request, one in zip(ask.requests, mine, strict=True) if one)
        fresh = free & _united(mask for mask, one in zip(eligible, mine, strict=True) if one)
        if asked > left and fresh.bit_count() > left:
            rest = {share: number for share, number in openings.items() if share != name}
            for chosen in combinations([1 << bit for bit in bits(fresh)], left):
                closed = fresh & ~sum(chosen)
                kept = tuple(mask & ~closed if one else mask for mask, one in zip(eligible, mine, strict=True))
                yield from _openings(ask, rest, free, kept)
            return
    yield eligible


def _united(masks: Iterable[int]) -> int:
    """All devices of some sets."""
    found = 0
    for mask in masks:
        found |= mask
    return found


def _load(placer: Placer, ask: Ask, view: NodeView, position: int) -> float:
    """Which part of a node is in use, divided devices by what is in use of them."""
    ledger, parts = placer.ledger.pools[ask.pool], placer.ledger.parts
    split, held = ledger.divided(position), ledger.held(position)
    used = (held & ~split).bit_count() * MILLI
    used += sum(parts.used_milli(ask.pool, view.devices[bit].kind, position, bit) for bit in bits(split))
    return used / (max(1, view.shape.size) * MILLI)


def _loaded(ask: Ask, objective: tuple[int, ...], load: float) -> tuple[int, ...]:
    """The objective with the load of the node as parts make it."""
    at = ask.signature.place(Part.NODE_LOAD)
    part = load if ask.signature.spread else 1 - load
    return (*objective[:at], int(part * LOAD_UNIT), *objective[at + 1 :])


def of_cards(placer: Placer, ask: Ask) -> Ask:
    """The ask in terms of cards: all parts that a request takes of one card count as one."""
    together = [request.same_device and request.share is not None for request in ask.requests]
    if not any(together):
        return ask
    counts = tuple(1 if one else count for one, count in zip(together, ask.signature.counts, strict=True))
    return replace(ask, form=placer.fitter.form(replace(ask.signature, counts=counts)))


def _sort(placer: Placer, ask: Ask, view: NodeView, eligible: tuple[int, ...], prices: dict[int, int]) -> Sort:
    values = tuple(view.values(name) for name in ask.question.attributes)
    stakes: tuple[Stake, ...] = tuple(((1 << bit,), (1,), price) for bit, price in sorted(prices.items()) if price)
    return placer.nodes.sort_of(eligible, values, stakes)


def grant(placer: Placer, ask: Ask, spot: Spot) -> None:
    """Takes a spot."""
    ledger = placer.ledger
    for bit, share in _parts_of(ask, spot) if ask.divides else ():
        ledger.take_part(ask.pool, spot.position, bit, share)
        if ask.profile is Profile.LATENCY:
            ledger.hush(ask.pool, spot.position, bit, add=True)
    ledger.take(ask.pool, spot.position, _whole(ask, spot), ask.host)


def take_back(placer: Placer, ask: Ask, spot: Spot) -> None:
    """Takes back what `grant` gave."""
    ledger = placer.ledger
    for bit, share in _parts_of(ask, spot):
        ledger.give_back_part(ask.pool, spot.position, bit, share)
        if ask.profile is Profile.LATENCY:
            ledger.hush(ask.pool, spot.position, bit, add=False)
    ledger.give_back(ask.pool, spot.position, _whole(ask, spot), ask.host)


def _parts_of(ask: Ask, spot: Spot) -> Iterator[tuple[int, PlacedShare]]:
    """Each card that a spot takes parts of, as often as it does."""
    for request, share, mask in zip(ask.requests, ask.parts, spot.fit.masks, strict=True):
        if share is not None:
            for bit in bits(mask):
                yield from [(bit, share)] * copies(request)


def _whole(ask: Ask, spot: Spot) -> int:
    """The devices of a spot that are taken whole."""
    whole = 0
    for request, mask in zip(ask.requests, spot.fit.masks, strict=True):
        whole |= 0 if request.share is not None else mask
    return whole


def copies(request: Request) -> int:
    """How many parts of each of its devices a request takes."""
    return request.count if request.share is not None and request.same_device else 1


def granted(ask: Ask, masks: tuple[int, ...]) -> Iterator[tuple[Request, int]]:
    """Each device of a spot (its bit), as often as a part of it is taken, under its request."""
    for request, mask in zip(ask.requests, masks, strict=True):
        for bit in bits(mask):
            for _ in range(copies(request)):
                yield request, bit
