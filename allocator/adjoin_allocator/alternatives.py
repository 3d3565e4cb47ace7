"""`firstOf`: ways of serving a claim's requests, in order of preference.

In come requests, some of which name alternatives; out come lists of requests that each say one thing: what the chosen
alternative asks for stands in the request itself, and the alternative stays in `first_of`, alone, so that what is
placed can be called by it (`gpu/half`). The name of the request stays, since lines speak of it whatever is chosen.

The first request decides first: all ways with its first alternative come before any with its second, and so on. A
replica takes the first way that fits anywhere. Nothing here knows what is free.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import product
from math import prod

from adjoin_allocator.model import Alternative, Request

WAYS = 256
"""Ways in which one replica may be served: each can cost a search, so a claim with more of them is refused."""

SPECS = 4096
"""How many claims' ways are remembered."""


def count_ways(requests: Sequence[Request]) -> int:
    """How many ways there are: the product of the numbers of alternatives."""
    return prod(len(request.first_of) or 1 for request in requests)


def ways(requests: tuple[Request, ...]) -> tuple[tuple[Request, ...], ...]:
    """All ways, the most wanted first; of requests without alternatives the only one, themselves.

    Raises:
        ValueError: There are more than `WAYS` (`count_ways` counts them beforehand).
    """
    if not _several(requests):
        return (requests,)
    if count_ways(requests) > WAYS:
        raise ValueError(f"{count_ways(requests)} ways of serving a claim, at most {WAYS} are tried")
    return _ways(requests)


@lru_cache(maxsize=SPECS)
def _ways(requests: tuple[Request, ...]) -> tuple[tuple[Request, ...], ...]:
    choices = [[taking(request, each) for each in request.first_of] or [request] for request in requests]
    return tuple(product(*choices))


def most_wanted(requests: tuple[Request, ...]) -> tuple[Request, ...]:
    """The first of the ways. It stands for the claim where others ask what it wants."""
    if not _several(requests):
        return requests
    return tuple(taking(request, request.first_of[0]) if request.first_of else request for request in requests)


def _several(requests: Sequence[Request]) -> bool:
    """Whether any of them has alternatives."""
    for request in requests:  # noqa: SIM110  Asked twice a decision; a generator costs more than the look.
        if request.first_of:
            return True
    return False


def label(request: Request) -> str:
    """What devices that are given for a request of a way are called by: its name, and that of the alternative."""
    return f"{request.name}/{request.first_of[0].name}" if request.first_of else request.name


def taking(request: Request, chosen: Alternative) -> Request:
    """A request that is served in one of its ways."""
    return replace(
        request,
        count=0 if chosen.all_devices else chosen.count,
        all_devices=chosen.all_devices,
        selectors=chosen.selectors,
        share=chosen.share,
        same_device=chosen.same_device,
        isolation=chosen.isolation,
        first_of=(chosen,),
    )
