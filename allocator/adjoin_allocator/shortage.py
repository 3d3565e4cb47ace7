"""Why parts of devices, or places on hosts, cannot be had, and the smallest change that would help.

In come the placer, a ledger in which everything that could be placed is, and an ask; out come reasons and the nearest
change, or None where neither parts nor hosts stand in the way and the devices themselves must be looked at. Changes are
proven by placing the edited ask in the same ledger. Nothing is taken here.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np

from adjoin_allocator.amounts import cores, counted, needed, size
from adjoin_allocator.card_rules import UNUSED
from adjoin_allocator.explain import missing
from adjoin_allocator.hosts import NOTHING
from adjoin_allocator.model import Claim, Request, Share, ShareAsk
from adjoin_allocator.partition_rules import PartitionRule
from adjoin_allocator.parts_helps import Cards
from adjoin_allocator.place import Ask, Placer
from adjoin_allocator.results import Code, Reason
from adjoin_allocator.sharing import AMOUNTS, ISOLATION, MILLI, Part, isolates
from adjoin_allocator.stock import Booleans, Stock, Wish
from adjoin_allocator.tariff import fits
from adjoin_allocator.terms import ShareMode

Answer = tuple[tuple[Reason, ...], str | None]
"""Reasons, the most actionable first, and the nearest change."""

Affordable = Callable[[tuple[Request, ...]], bool]
"""Whether a tenant's quota allows a replica that asks this."""

_TRIES = 8
"""How many smaller amounts are tried."""


def share_refusals(
    claim: Claim, requests: Sequence[Request], shares: Mapping[str, Share], refusal: Callable[[Share], str]
) -> tuple[Reason, ...]:
    """Why the parts that one way of serving a claim asks for are not even looked for: one reason for each request of
    which that is so, in their order. `refusal` says why a share cannot split the devices that it selects.
    """
    found = (_share_refusal(claim, request, shares, refusal) for request in requests)
    # Several requests may ask the same share in vain.
    return tuple(dict.fromkeys(reason for reason in found if reason is not None))


def _share_refusal(
    claim: Claim, request: Request, shares: Mapping[str, Share], refusal: Callable[[Share], str]
) -> Reason | None:
    """Why one request's parts are not looked for. What is wrong with the request is not asked of a share that has
    nothing to do with it.
    """
    if request.share is None:
        return None
    name, share = request.share.name, shares.get(request.share.name)
    if share is None:
        return Reason(Code.SHARE_UNAVAILABLE, 0, f"there is no DeviceShare {name}")
    why = _elsewhere(claim.pool, request, share)
    if why is not None:
        return Reason(Code.SHARE_UNAVAILABLE, 0, why)
    why = share_flaw(request, share)
    if why is not None:
        return Reason(Code.INVALID_CLAIM, 0, why)
    refused = share.refusal or refusal(share)
    if refused:
        return Reason(Code.SHARE_UNAVAILABLE, 0, f"DeviceShare {name}: {refused}")
    if not isolates(share.mode, request.isolation):
        told = f"request {request.name} asks for isolation {request.isolation}"
        return Reason(
            Code.ISOLATION_UNAVAILABLE, 0, f"{told}, {share.mode} of DeviceShare {name} is {ISOLATION[share.mode]}"
        )
    return None


def less_isolation(
    placer: Placer, claim: Claim, shares: Mapping[str, Share], refused: Callable[[Sequence[Request]], object]
) -> str | None:
    """That a claim which asks for more isolation than its shares give would fit with what they give, if one more
    replica of that does; `refused` says whether there is another reason against requests.
    """
    softer: list[Request] = []
    changes: list[str] = []
    for request in claim.requests:
        share = None if request.share is None else shares.get(request.share.name)
        if share is not None and not isolates(share.mode, request.isolation):
            given = ISOLATION[share.mode]
            changes.append(f"isolation {given} instead of {request.isolation} in request {request.name}")
            request = replace(request, isolation=given)
        softer.append(request)
    if not changes or refused(softer):
        return None
    pool = placer.ledger.pools[claim.pool].index.pool
    ask = placer.ask(pool, tuple(softer), claim.affinity, claim.host, claim.profile)
    return f"fits with {' and '.join(changes)}" if fits(placer, ask) else None


def _elsewhere(pool: str, request: Request, share: Share) -> str | None:
    """Why a share has nothing to do with a request."""
    if share.pool != pool:
        return f"DeviceShare {share.name} splits devices of pool {share.pool}, not of {pool}"
    if share.kind != request.kind:
        return f"request {request.name} asks for device {request.kind}, DeviceShare {share.name} splits {share.kind}"
    return None


def share_flaw(request: Request, share: Share) -> str | None:
    """Why a request for parts cannot be read against its share."""
    ask = request.share
    assert ask is not None, "whole devices are asked of no share"
    if request.all_devices:
        return f"request {request.name} asks for parts of all devices; how many parts is said with count"
    told = f"request {request.name} asks for"
    fitting = _ASKED.get(share.mode, "")
    for field, given in (
        ("slots", ask.slots is not None),
        ("memory and compute", ask.memory_bytes is not None or ask.compute_milli is not None),
        ("profile", bool(ask.profile)),
    ):
        if given and field != fitting:
            instead = f"ask for {fitting} instead" if fitting else "leave it out"
            return f"{told} {field} of DeviceShare {share.name}, whose mode is {share.mode}; {instead}"
    if share.mode in AMOUNTS:
        amounts = [amount for amount in (ask.memory_bytes, ask.compute_milli) if amount is not None]
        if not amounts or min(amounts) < 1:
            return f"{told} no memory and no compute of DeviceShare {share.name}"
        if ask.compute_milli is not None and ask.compute_milli > MILLI:
            whole = "a part is at most one card (1000m), and several cards are asked for with count"
            return f"{told} {ask.compute_milli}m of a card's compute; {whole}"
    if share.mode is ShareMode.TIME_SLICED and ask.slots is not None and ask.slots > share.slots:
        more = "more slots are no more devices: several devices are asked for with count"
        return f"{told} {ask.slots} slots of one device, DeviceShare {share.name} has {share.slots} of each; {more}"
    if share.mode is ShareMode.PARTITIONED:
        known = ", ".join(share.layout or share.profiles)
        if not ask.profile:
            return f"{told} no profile of DeviceShare {share.name} (it has: {known})"
        if ask.profile not in (*share.layout, *share.profiles):
            return f"{told} profile {ask.profile}, DeviceShare {share.name} has: {known}"
    return None


_ASKED = {
    ShareMode.TIME_SLICED: "slots",
    ShareMode.FRACTIONAL: "memory and compute",
    ShareMode.MPS: "memory and compute",
    ShareMode.PARTITIONED: "profile",
}
"""What parts are asked for by; functions are all alike."""


def shortage(placer: Placer, ask: Ask, affordable: Affordable = lambda _: True) -> Answer | None:
    """Why there is no place, as far as parts and hosts are to blame, and the nearest change with which the tenant could
    afford it.
    """
    if not any(request.share is not None for request in ask.requests):
        return None
    if ask.host != NOTHING and fits(placer, replace(ask, host=NOTHING)):
        return (_host(placer, ask),), _less_host(placer, ask) if affordable(ask.requests) else None
    found = [reason for request in ask.requests if request.share for reason in _parts(placer, ask, request)]
    if not found:
        found.append(Reason(Code.FRAGMENTED, _nodes(placer, ask), "no node has all parts and devices together"))
    return tuple(found), less_of(placer, ask, affordable)


def _nodes(placer: Placer, ask: Ask) -> int:
    return len(placer.ledger.pools[ask.pool].index.views)


def _host(placer: Placer, ask: Ask) -> Reason:
    """Parts could be had, their hosts are full."""
    index, rooms, asked = placer.ledger.pools[ask.pool].index, placer.rooms(ask), ask.host
    open_ = [position for position in range(len(index.views)) if position not in index.closed]
    left = [(int(rooms.cpu_milli[position]), int(rooms.memory_bytes[position])) for position in open_]
    short = []
    if not any(cpu >= asked.cpu_milli for cpu, _ in left):
        most = max((cpu for cpu, _ in left), default=0)
        short.append(f"needs {cores(asked.cpu_milli)} CPU, best node has {cores(max(0, most))} left")
    if not any(memory >= asked.memory_bytes for _, memory in left):
        most = max((memory for _, memory in left), default=0)
        short.append(f"needs {needed(asked.memory_bytes)} of host memory, best node has {size(max(0, most))} left")
    count = sum(cpu < asked.cpu_milli or memory < asked.memory_bytes for cpu, memory in left)
    wanted = f"needs {cores(asked.cpu_milli)} CPU and {needed(asked.memory_bytes)} memory beside its devices"
    message = ", ".join(short) or f"{wanted}, no node with the devices has that left"
    return Reason(Code.HOST_RESOURCES, count, message)


def _less_host(placer: Placer, ask: Ask) -> str | None:
    """How much less of the host would do."""
    rooms = placer.rooms(ask)
    for cpu in sorted({cpu for cpu in rooms.cpu_milli.tolist() if 0 < cpu < ask.host.cpu_milli}, reverse=True)[:_TRIES]:
        if fits(placer, replace(ask, host=replace(ask.host, cpu_milli=cpu))):
            return f"fits with host cpu {cores(cpu)} instead of {cores(ask.host.cpu_milli)}"
    smaller = {memory for memory in rooms.memory_bytes.tolist() if 0 < memory < ask.host.memory_bytes}
    for memory in sorted(smaller, reverse=True)[:_TRIES]:
        if fits(placer, replace(ask, host=replace(ask.host, memory_bytes=memory))):
            return f"fits with host memory {size(memory)} instead of {needed(ask.host.memory_bytes)}"
    return None


def _parts(placer: Placer, ask: Ask, request: Request) -> Iterator[Reason]:
    """What keeps one request's parts from being found."""
    share, pool, index = request.share, ask.pool, placer.ledger.pools[ask.pool].index
    assert share is not None
    parts = placer.ledger.parts
    kind, wish = parts.wish(pool, (request,), NOTHING)
    stock = parts.appraiser(pool, kind).stock
    at = stock.share_at[share.name]
    chosen = stock.selected[at] & stock.eligible[wish.only]
    nodes = int(chosen.any(axis=1).sum())
    told = f"request {request.name}"
    if not chosen.any():
        yield Reason(
            Code.SELECTOR_UNMATCHED,
            len(index.views),
            f"{told}: none of {int(stock.exists.sum())} {kind} is in DeviceShare {share.name} and matches",
        )
        return
    # What a card gives when empty: others than us have nothing of it then either.
    each, rules = wish.of_each, [replace(rule, lent=None) if rule.lent else rule for rule in stock.rules[at]]
    words = told_part(each, stock.shares[at])
    gives = np.array([rule.after(UNUSED, each) is not None for rule in rules], dtype=bool)
    roomy = int((chosen & gives[stock.klass]).sum(axis=1).max())
    if not roomy:
        most = rules[int(stock.klass[chosen].max())].told(UNUSED)
        message = f"{told} needs {words} of one {kind}, the largest in DeviceShare {share.name} gives {most}"
        yield Reason(Code.SHARE_UNAVAILABLE, nodes, message)
        message = f"{told} needs {wish.parts} {kind} of that size, best node has 0 even when empty"
        yield Reason(Code.INSUFFICIENT_DEVICES, nodes, message)
        return
    if roomy < wish.parts:
        yield Reason(
            Code.INSUFFICIENT_DEVICES,
            nodes,
            f"{told} needs {words} of {wish.parts} {kind}, best node has {roomy} of that size even when empty",
        )
        return
    mine = _mine(stock, at, wish)
    best = int((mine & stock.fitting(at, each)).sum(axis=1).max())
    if best >= wish.parts:
        return
    yield from Cards(placer, pool, kind, stock, at, wish, _mine(stock, at, wish, closed=True)).reasons()
    limit = stock.shares[at].max_devices
    full = ""
    if limit is not None and stock.in_mode[at] >= limit:
        full = f", all {limit} that it may split are split" if limit > 1 else ", the one that it may split is split"
        if stock.in_mode[at] > limit:
            full = f", {stock.in_mode[at]} devices are split and it may split {limit}: nothing is given until fewer are"
    over = mine & stock.overdrawn(at)
    if over.any():
        full += f", of {counted(int(over.sum()), 'device')} more is in use than it gives by now"
    yield Reason(
        Code.SHARE_UNAVAILABLE,
        nodes,
        f"{told} needs {words} of {wish.parts} {kind} in DeviceShare {share.name}; best node has {best}, best "
        f"{kind} has {_most(stock, at, mine & ~over, each)}{full}{missing(index, kind)}",
    )
    if stock.shares[at].mode is ShareMode.PARTITIONED:
        yield from _scattered(placer, ask, request, stock, at, mine, each.times(wish.parts))
        return
    # A card that has as many users as it may have gives nothing, whatever is left of it.
    mine = mine & stock.gives(at, each)
    together, sums = stock.left(at, mine), ""
    if stock.shares[at].mode in AMOUNTS:
        sums = f"{size(together[0])} and {together[1]}m are"
    elif each.units and not each.milli:
        sums = f"{together[0]} {unit_word(stock.shares[at], together[0])} {'is' if together[0] == 1 else 'are'}"
    if sums and together[0] >= each.units * wish.parts and together[1] >= each.milli * wish.parts:
        message = f"{told}: {sums} free on {int(mine.sum())} {kind}, but not together"
        yield Reason(Code.FRAGMENTED, nodes, message)


def _scattered(
    placer: Placer, ask: Ask, request: Request, stock: Stock, at: int, mine: Booleans, part: Part
) -> Iterator[Reason]:
    """Slices that would be enough but do not lie together, and a partition that alone is in the way."""
    free, needs = [0, 0], list[tuple[int, int]]()
    for rule in stock.rules[at]:
        if isinstance(rule, PartitionRule) and rule.after(UNUSED, replace(part, number=1)) is not None:
            needs.append(rule.slices(part))
    for position, column in np.argwhere(mine).tolist():
        used, rule = stock.use(position, column), stock.rules[at][stock.klass.item(position, column)]
        if isinstance(rule, PartitionRule):
            left = rule.left_slices(UNUSED if used is None else used[1])
            free = [free[0] + left[0], free[1] + left[1]]
    # What is not there of a layout is in use, wherever it lies.
    if stock.shares[at].layout or not any(memory <= free[0] and compute <= free[1] for memory, compute in needs):
        return
    is_free = f"{counted(free[0], 'memory slice')} {'is' if free[0] == 1 else 'are'} free"
    words = f"{is_free} on {int(mine.sum())} {request.kind}, but not together"
    blocker = "" if request.count > 1 else _blocker(placer, ask, request, stock, at, mine, part)
    yield Reason(Code.FRAGMENTED, int(mine.any(axis=1).sum()), f"request {request.name}: {words}{blocker}")


def _blocker(placer: Placer, ask: Ask, request: Request, stock: Stock, at: int, mine: Booleans, part: Part) -> str:
    """The first partition without which a card would have room, and whose it is; or ""."""
    ledger, parts = placer.ledger, placer.ledger.parts
    for position, column in np.argwhere(mine).tolist():
        bit = parts.columns(ask.pool, request.kind, position)[column]
        view, rule = ledger.pools[ask.pool].index.views[position], stock.rules[at][stock.klass.item(position, column)]
        hands = list(ledger.part_hands(ask.pool, position))
        for claim, _, held, _ in sorted(hands, key=lambda hand: (hand[0].namespace, hand[0].name, hand[1].index)):
            for at_bit, share in held:
                rest = Counter(parts.held(ask.pool, position, bit))
                rest.subtract([share])
                if at_bit == bit and rule.after(rule.use(rest.items()), part) is not None:
                    where = f"{view.name}/{view.devices[bit].id.device} would have room without {share.profile}"
                    return f"; {where} at {share.start} of {claim.namespace}/{claim.name}"
    return ""


def _most(stock: Stock, at: int, mine: Booleans, each: Part) -> str:
    """`free 68Mi and 200m`: what the best card has of each thing that is asked for."""
    share = stock.shares[at]
    if share.mode is ShareMode.PARTITIONED:
        return stock.best_told(at, mine)
    units, milli, clients = stock.most(at, mine)
    full = clients < each.clients or (not clients and bool(mine.any()))
    words = [
        f"free {size(units) if share.mode in AMOUNTS else f'{units} {unit_word(share, units)}'}" if each.units else "",
        f"free {milli}m" if each.milli else "",
        f"room for {clients} more" if full else "",
    ]
    return " and ".join(filter(None, words))


def _mine(stock: Stock, at: int, wish: Wish, closed: bool = False) -> Booleans:
    """Cards that the share could give something of; with `closed` as if no node were closed."""
    chosen = stock.selected[at] & stock.eligible[wish.only]
    if not closed:
        chosen = chosen & ~stock.closed[:, None]
    limit = stock.shares[at].max_devices
    fresh = chosen & stock.fresh
    if limit is not None and stock.in_mode[at] >= limit:
        fresh = np.zeros_like(fresh)
        if stock.in_mode[at] > limit:
            chosen = fresh
    found: Booleans = fresh | (chosen & (stock.used[0] == at) & stock.usable)
    return found


def less_of(placer: Placer, ask: Ask, affordable: Affordable = lambda _: True) -> str | None:
    """Which smaller part would fit: `fits with memory 18022Mi instead of 40Gi in request gpu`."""
    pool = placer.ledger.pools[ask.pool].index.pool
    for words, requests in smaller_parts(placer, ask):
        if affordable(requests) and fits(placer, placer.ask(pool, requests, ask.affinity, ask.host, ask.profile)):
            return words
    return None


def smaller_parts(placer: Placer, ask: Ask, most: int = 1) -> Iterator[tuple[str, tuple[Request, ...]]]:
    """Smaller parts to try, the greatest first: what is left of a card, shared by up to so many replicas."""
    for at_, request in enumerate(ask.requests):
        share = request.share
        if share is None:
            continue
        kind, wish = placer.ledger.parts.wish(ask.pool, (request,), NOTHING)
        stock = placer.ledger.parts.appraiser(ask.pool, kind).stock
        at = stock.share_at[share.name]
        mine, mode = _mine(stock, at, wish), stock.shares[at].mode
        if mode in AMOUNTS:
            found = _smaller_amounts(stock, at, mine, share, most, request.count if request.same_device else 1)
        elif mode is ShareMode.TIME_SLICED:
            asked = 1 if share.slots is None else share.slots
            slots = sorted({left for left in stock.free_units(at)[mine].tolist() if 0 < left < asked}, reverse=True)
            found = [(f"slots {left} instead of {asked}", replace(share, slots=left)) for left in slots]
        elif mode is ShareMode.PARTITIONED:
            smaller = stock.rules[at][0].smaller(share.profile)
            found = [(f"profile {name} instead of {share.profile}", replace(share, profile=name)) for name in smaller]
        else:
            found = []
        for changes, less in found[:_TRIES]:
            requests = (*ask.requests[:at_], replace(request, share=less), *ask.requests[at_ + 1 :])
            yield f"fits with {changes} in request {request.name}", requests


def _smaller_amounts(
    stock: Stock, at: int, mine: Booleans, share: ShareAsk, most: int, copies: int
) -> list[tuple[str, ShareAsk]]:
    sizes: set[tuple[int, int]] = set()
    units, milli = stock.free_units(at), stock.free_milli(at)
    for sharers in range(1, min(most, _TRIES) + 1):
        fold = sharers * copies
        sizes.update(zip((units // fold)[mine].tolist(), (milli // fold)[mine].tolist(), strict=True))
    tried: dict[tuple[int | None, int | None], None] = {}
    for memory, compute in sorted(sizes, reverse=True):
        smaller = (
            None if share.memory_bytes is None else min(share.memory_bytes, memory),
            None if share.compute_milli is None else min(share.compute_milli, compute),
        )
        if 0 not in smaller and smaller != (share.memory_bytes, share.compute_milli):
            tried[smaller] = None
    found = []
    for memory_bytes, compute_milli in list(tried)[:_TRIES]:
        changes = []
        if memory_bytes != share.memory_bytes and memory_bytes is not None:
            changes.append(f"memory {size(memory_bytes)} instead of {needed(share.memory_bytes or 0)}")
        if compute_milli != share.compute_milli:
            changes.append(f"compute {compute_milli}m instead of {share.compute_milli}m")
        found.append((" and ".join(changes), replace(share, memory_bytes=memory_bytes, compute_milli=compute_milli)))
    return found


def told_part(part: Part, share: Share) -> str:
    """`8Gi and 250m`, `2 slots`, `1 function`, `profile 3g.40gb`: a part in words."""
    if part.profile:
        return f"{part.number} times profile {part.profile}" if part.number > 1 else f"profile {part.profile}"
    sizes = []
    if part.amount is not None:
        amount = needed(part.amount) if share.mode in AMOUNTS else f"{part.amount} {unit_word(share, part.amount)}"
        sizes.append(amount)
    if part.compute_milli is not None:
        sizes.append(f"{part.compute_milli}m")
    return " and ".join(sizes)


def unit_word(share: Share, number: int) -> str:
    """What pieces of a device are called."""
    word = "slot" if share.mode is ShareMode.TIME_SLICED else "function"
    return word if number == 1 else f"{word}s"
