"""What a replica will cost its tenant, before it has a place: between which bounds.

In come a placer and requests that each say one thing or list alternatives; out come the least and the most that a
replica can cost, wherever in the pool it is placed. What `all` is depends on the node, and what a part is of a card on
the card. Nothing here looks at what is free, or at quotas.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

import numpy as np

from adjoin_allocator.alternatives import taking
from adjoin_allocator.card_rules import UNUSED
from adjoin_allocator.hosts import NOTHING
from adjoin_allocator.model import Request
from adjoin_allocator.place import Placer
from adjoin_allocator.sharing import part
from adjoin_allocator.tenancy import Cost, added, least_cost

Pick = Callable[[Iterable[int]], int]
"""Which of the amounts that are possible: `min` or `max`."""


def outlay(placer: Placer, pool: str, requests: Sequence[Request], pick: Pick) -> Cost:
    """What one replica costs at least (`min`) or at most (`max`), of alternatives the cheapest. Costs a look at each
    node for requests for `all`, at each class of cards for parts.
    """
    return added(*(_cheapest(placer, pool, request, pick) for request in requests))


def times(cost: Cost, number: int) -> Cost:
    """What so many replicas cost."""
    return cost if number == 1 else {kind: milli * number for kind, milli in cost.items()}


def _cheapest(placer: Placer, pool: str, request: Request, pick: Pick) -> Cost:
    ways = [taking(request, one) for one in request.first_of] if len(request.first_of) > 1 else [request]
    return min((_one(placer, pool, way, pick) for way in ways), key=lambda cost: sum(cost.values()))


def _one(placer: Placer, pool: str, request: Request, pick: Pick) -> Cost:
    index = placer.ledger.pools[pool].index
    bare = least_cost((request,), index.portions)
    if request.all_devices:
        found = _of_all(placer, pool, request)
    elif request.share is not None and request.share.name in placer.ledger.parts.shares:
        found = _of_parts(placer, pool, request)
    else:
        return bare
    return {request.kind: max(pick(found), bare[request.kind])} if found else bare


def _of_all(placer: Placer, pool: str, request: Request) -> list[int]:
    """By node with such devices what all of them cost."""
    index, holders = placer.ledger.pools[pool].index, placer.ledger.holders[pool]
    masks = (
        (position, view.eligible(request.kind, request.selectors))
        for position, view in enumerate(index.views)
        if position not in index.closed
    )
    return [holders.cost(position, mask).get(request.kind, 0) for position, mask in masks if mask]


def _of_parts(placer: Placer, pool: str, request: Request) -> list[int]:
    """By class of cards that could give such parts what they cost."""
    parts, ask = placer.ledger.parts, request.share
    assert ask is not None, "whole devices are no parts"
    kind, wish = parts.wish(pool, (replace(request, first_of=()),), NOTHING)
    stock = parts.appraiser(pool, kind).stock
    at = stock.share_at.get(ask.name)
    if at is None:
        return []
    chosen = stock.selected[at] & stock.eligible[wish.only]
    each = part(ask, parts.shares[ask.name])
    rules = [stock.rules[at][number] for number in np.unique(stock.klass[chosen]).tolist()]
    return [rule.cost(each) * request.count for rule in rules if rule.after(UNUSED, each) is not None]
