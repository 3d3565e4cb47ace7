"""The smallest change that would make one more replica fit, in words.

In come the placer and the asks that were refused. First is asked whether it is enough to wait for what others give back
already (`waitfor`). Then changes of the claim are tried one at a time, the mildest first, and each is proven by placing
the edited ask in the same ledger: a Required scope one step farther, two steps, …; an attribute line dropped; less of
the host; a selector dropped; fewer devices of one request, or of all in proportion. If none helps alone, all Required
lines together are made Preferred or dropped. At last it is asked whose end would do. Nothing is taken here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from math import gcd

from adjoin_allocator.alternatives import label
from adjoin_allocator.amounts import cores, needed, size
from adjoin_allocator.hosts import NOTHING
from adjoin_allocator.model import Affinity, ClaimUID, Request
from adjoin_allocator.place import Ask, Placer
from adjoin_allocator.terms import SCOPES, Policy
from adjoin_allocator.waitfor import NOBODY, Given, ending, returning

HOST_STEPS = 32
"""Smaller amounts of a host resource that are tried, the greatest first."""

Affordable = Callable[[tuple[Request, ...]], bool]
"""Whether a tenant's quota allows a replica that asks this."""

Edit = tuple[str, tuple[Request, ...], tuple[Affinity, ...]]
"""The change in words, and what is asked then."""


def nearest(
    placer: Placer,
    asks: Sequence[Ask],
    ahead: Sequence[Ask] = (),
    mine: ClaimUID | None = None,
    given: Given = NOBODY,
    affordable: Affordable = lambda _: True,
) -> str | None:
    """`fits with scope PCIeRoot instead of PCIeSwitch`, or None when no such change helps.

    `asks` are the ways of serving a claim (`mine`), the most wanted first, and `ahead` what waits before it: what is
    waited for is only told when nobody of these could take it. `given` is what this decision has given to others.
    Nothing is told with which the tenant's quota would then stand in the way.
    """
    for waited in (returning, ending):
        if waited is ending:
            words = changed(placer, asks, affordable)
            if words is not None:
                return words
        for ask in filter(lambda ask: affordable(ask.requests), asks):
            words = waited(placer, ask, ahead, mine, given)
            if words is not None:
                return words
    return None


def changed(placer: Placer, asks: Sequence[Ask], affordable: Affordable = lambda _: True) -> str | None:
    """The smallest change of the claim itself, after which its tenant could afford it."""
    changes = (_change(placer, ask, affordable) for ask in asks)
    return next((change for change in changes if change is not None), None)


def waits(words: str) -> bool:
    """Whether such a sentence speaks of waiting for others, who may give way to one claim only."""
    return words.startswith(("fits when ", "fits once "))


def _change(placer: Placer, ask: Ask, affordable: Affordable) -> str | None:
    if not affordable(ask.requests):
        # What costs as much as now is no help, whatever else it is.
        edits = (edit for edit in _count_edits(placer, ask) if affordable(edit[1]))
        return next((words for words, requests, lines in edits if _fits(placer, ask, requests, lines)), None)
    bare = tuple(_soft(line) for line in ask.affinity if line.scope is not None)
    without_lines = _fits(placer, ask, ask.requests, bare)
    if without_lines:
        for words, requests, affinity in _line_edits(ask):
            if _fits(placer, ask, requests, affinity):
                return words
    words_ = _less_host(placer, ask)
    if words_ is not None:
        return words_
    for words, requests, affinity in (*_selector_edits(ask), *_count_edits(placer, ask)):
        if affordable(requests) and _fits(placer, ask, requests, affinity):
            return words
    if without_lines and bare != ask.affinity:
        attributes = any(line.scope is None for line in ask.affinity)
        scopes = any(line.policy is Policy.REQUIRED for line in ask.affinity)
        changes = ["with policy Preferred instead of Required in every line"] if scopes else []
        changes += ["without any Match or Distinct line"] if attributes else []
        return f"fits {' and '.join(changes)}"
    return None


def _fits(placer: Placer, ask: Ask, requests: tuple[Request, ...], affinity: tuple[Affinity, ...]) -> bool:
    pool = placer.ledger.pools[ask.pool].index.pool
    return placer.fits(placer.ask(pool, requests, affinity, ask.host, ask.profile))


def _less_host(placer: Placer, ask: Ask) -> str | None:
    """How much less CPU, or else memory, would do beside the devices; nothing less than a node has left."""
    if ask.host == NOTHING:
        return None
    index, rooms = placer.ledger.pools[ask.pool].index, placer.rooms(ask)
    for field, left, told, wanted in (
        ("cpu_milli", rooms.cpu_milli, cores, cores),
        ("memory_bytes", rooms.memory_bytes, size, needed),
    ):
        asked = getattr(ask.host, field)
        for most in sorted({amount for amount in left.tolist() if 0 < amount < asked}, reverse=True)[:HOST_STEPS]:
            less = replace(ask.host, **{field: most})
            if placer.fits(placer.ask(index.pool, ask.requests, ask.affinity, less, ask.profile)):
                return f"fits with host {field.partition('_')[0]} {told(most)} instead of {wanted(asked)}"
    return None


def _soft(line: Affinity) -> Affinity:
    return replace(line, policy=Policy.PREFERRED)


def _line_edits(ask: Ask) -> Iterator[Edit]:
    for steps in range(1, len(SCOPES)):
        for at, line in enumerate(ask.affinity):
            if line.scope is not None and line.policy is Policy.REQUIRED and line.scope.rank + steps < len(SCOPES):
                farther = SCOPES[line.scope.rank + steps]
                words = f"fits with scope {farther} instead of {line.scope}"
                if sum(other.scope is not None and other.policy is Policy.REQUIRED for other in ask.affinity) > 1:
                    words += f" over {', '.join(line.requests)}"
                yield words, ask.requests, _with(ask.affinity, at, replace(line, scope=farther))
    for at, line in enumerate(ask.affinity):
        if line.scope is None:
            words = f"fits without {line.policy} of {line.attribute}"
            yield words, ask.requests, (*ask.affinity[:at], *ask.affinity[at + 1 :])


def _with(lines: tuple[Affinity, ...], at: int, line: Affinity) -> tuple[Affinity, ...]:
    return (*lines[:at], line, *lines[at + 1 :])


def _selector_edits(ask: Ask) -> Iterator[Edit]:
    for at, request in enumerate(ask.requests):
        for place in range(len(request.selectors)):
            kept = (*request.selectors[:place], *request.selectors[place + 1 :])
            which = (
                "its selector" if len(request.selectors) == 1 else f"selector {place + 1} of {len(request.selectors)}"
            )
            words = f"fits without {which} in request {label(request)}"
            yield words, _changed(ask, at, replace(request, selectors=kept)), ask.affinity


def _changed(ask: Ask, at: int, request: Request) -> tuple[Request, ...]:
    return (*ask.requests[:at], request, *ask.requests[at + 1 :])


def _count_edits(placer: Placer, ask: Ask) -> Iterator[Edit]:
    """Fewer devices: of one request, the greatest count first; then of all, keeping their ratio."""
    states = placer.open_states(ask)
    edits: list[tuple[int, int, Edit]] = []
    for at, request in enumerate(ask.requests):
        most = max((shape.most(free, sort.eligible[at]) for shape, sort, free in states), default=0)
        for count in range(min(most, request.count - 1 if not request.all_devices else most), 0, -1):
            asked = "all" if request.all_devices else str(request.count)
            words = f"fits with count {count} instead of {asked} in request {label(request)}"
            edit = (words, _changed(ask, at, replace(request, count=count, all_devices=False)), ask.affinity)
            edits.append(((most if request.all_devices else request.count) - count, at, edit))
    yield from (edit for _, _, edit in sorted(edits, key=lambda entry: entry[:2]))
    counts = [request.count for request in ask.requests]
    if len(counts) > 1 and not any(request.all_devices for request in ask.requests):
        unit = gcd(*counts)
        for part in range(unit - 1, 0, -1):
            smaller = tuple(replace(request, count=request.count // unit * part) for request in ask.requests)
            told = ", ".join(f"{request.count} {label(request)}" for request in smaller)
            yield f"fits with {told}", smaller, ask.affinity
