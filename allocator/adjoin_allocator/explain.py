"""Why replicas of a claim have no place, in words.

In comes a `Diagnosis`, out come reasons: all that apply, the most actionable first, each with a code, the number of
nodes it speaks of and a sentence with numbers. The first one also carries a count of all nodes by class.

What is listed before what: what must change in the claim or in what drivers publish (no device matches, an attribute
or a fact is missing, a line cannot be met, an inventory is incomplete, more is asked than any node has), then what
passes or can be repaired (devices on their way back, closed nodes, unhealthy devices), then that others hold too
much.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from adjoin_allocator.alternatives import label
from adjoin_allocator.amounts import cores, counted, needed, size
from adjoin_allocator.cost import AttributeLine, ScopeLine
from adjoin_allocator.diagnosis import Blocker, Diagnosis, Group, Help, spared
from adjoin_allocator.model import Pool
from adjoin_allocator.nodes import CORDONED, DELETING, GONE, NOT_READY, TAINTED, PoolIndex
from adjoin_allocator.results import Code, Reason
from adjoin_allocator.selectors import survey
from adjoin_allocator.terms import Scope, Standing
from adjoin_allocator.topology import bits

FACTS = {Scope.PCIE_SWITCH: "pcieSwitch", Scope.PCIE_ROOT: "pcieRoot", Scope.NUMA_NODE: "numaNode"}
"""The fact that decides a scope, in the words of `topology.attributes`."""

NAMED = 3
"""How many nodes or devices a sentence names before it only counts."""


def reasons(diagnosis: Diagnosis) -> tuple[Reason, ...]:
    """All reasons that apply, the most actionable first. There is always one."""
    every = (
        *_unmatched(diagnosis),
        *_lines(diagnosis),
        *_driver(diagnosis),
        *_never(diagnosis),
        *_host(diagnosis),
        *_releasing(diagnosis),
        *_closed(diagnosis),
        *_unhealthy(diagnosis),
        *_scarce(diagnosis),
        *_limit(diagnosis),
    )
    # Two equal lines stand in the way for one reason.
    found = list(dict.fromkeys(every))
    summary = _summary(diagnosis)
    if found and summary:
        first = found[0]
        found[0] = Reason(first.code, first.nodes, f"{first.message}; {summary}")
    return tuple(found)


def nodes_word(count: int) -> str:
    """`1 node`, `2 nodes`."""
    return counted(count, "node")


def _amount(diagnosis: Diagnosis, request: int) -> str:
    asked = diagnosis.ask.requests[request]
    return f"all {label(asked)}" if asked.all_devices else f"{asked.count} {label(asked)}"


def _first(groups: Iterable[Group]) -> list[int]:
    """The positions that a sentence names: the first nodes of all these groups."""
    return sorted(position for group in groups for position in group.positions[:NAMED])[:NAMED]


def missing(index: PoolIndex, kind: str) -> str:
    """`, 2 missing (n1/gpu-0 has no Node object, …)`: devices of a name that are not there, or ""."""
    gone = [
        f"{view.name}/{view.devices[bit].id.device}{f' {why}' if (why := view.devices[bit].standing_detail) else ''}"
        for view in index.views
        for bit in bits(view.standing.get(Standing.MISSING, 0) & view.shape.kinds.get(kind, 0))
    ]
    return f", {len(gone)} missing ({listed(gone)})" if gone else ""


def listed(names: Sequence[str], total: int | None = None) -> str:
    """The first names, and how many more there are in all."""
    more = (len(names) if total is None else total) - NAMED
    return ", ".join(names[:NAMED]) + (f" and {more} more" if more > 0 else "")


def _unmatched(diagnosis: Diagnosis) -> Iterator[Reason]:
    """Requests that no device of the pool matches, whoever holds it."""
    for place, request in enumerate(diagnosis.ask.requests):
        if diagnosis.eligible[place] or not request.selectors:
            continue
        devices = [device for view in diagnosis.index.views for device in view.devices if device.kind == request.kind]
        if not devices:
            continue
        report = survey(request.selectors, devices)
        causes = [f"{name} missing on {count}" for name, count in report.missing]
        yield Reason(
            Code.SELECTOR_UNMATCHED,
            len(diagnosis.index.views),
            f"request {label(request)}: none of {report.devices} {request.kind} matches the selectors"
            + (f" ({', '.join(causes)})" if causes else ""),
        )


def _never(diagnosis: Diagnosis) -> Iterator[Reason]:
    """More than any node has, even when empty."""
    if any(group.roomy for group in diagnosis.groups):
        return
    if not diagnosis.ask.requests:
        yield Reason(Code.NODE_UNAVAILABLE, 0, f"pool {diagnosis.index.pool.name} has no nodes")
        return
    short = []
    unmatched = False
    for place, request in enumerate(diagnosis.ask.requests):
        best = max((group.sort.eligible[place].bit_count() for group in diagnosis.groups), default=0)
        if not diagnosis.eligible[place]:
            if not any(kind == request.kind for kind, _ in diagnosis.index.tally):
                short.append(f"needs {_amount(diagnosis, place)}, the pool has none")
            else:
                unmatched = True
        elif best < diagnosis.needed[place]:
            short.append(f"needs {_amount(diagnosis, place)}, best node has {best} even when empty")
    if not short and unmatched:
        return
    wanted = " and ".join(_amount(diagnosis, place) for place in range(len(diagnosis.ask.requests)))
    message = ", ".join(short) or f"needs {wanted} on one node, no node has these together even when empty"
    yield Reason(Code.INSUFFICIENT_DEVICES, len(diagnosis.index.views), message)


def _scarce(diagnosis: Diagnosis) -> Iterator[Reason]:
    """Too few free in the pool, or enough but on no node together."""
    roomy = [group for group in diagnosis.groups if group.roomy]
    if not roomy or any(group.together for group in diagnosis.groups):
        return
    short = [
        f"needs {_amount(diagnosis, place)}, {diagnosis.free[place]} of {diagnosis.eligible[place]} free"
        + _strangers(diagnosis.foreign[place])
        + missing(diagnosis.index, diagnosis.ask.requests[place].kind)
        for place in range(len(diagnosis.ask.requests))
        if diagnosis.free[place] < diagnosis.needed[place]
    ]
    if short:
        count = sum(group.nodes for group in diagnosis.groups if any(group.sort.eligible))
        yield Reason(Code.INSUFFICIENT_DEVICES, count, ", ".join(short))
        return
    parts = [group for group in diagnosis.groups if _some_free(group)]
    best = []
    for place in range(len(diagnosis.ask.requests)):
        most = max(group.most[place] for group in diagnosis.groups)
        if most < diagnosis.needed[place] or diagnosis.ask.requests[place].all_devices:
            best.append(f"needs {_amount(diagnosis, place)}, best node has {most} free")
    wanted = " and ".join(_amount(diagnosis, place) for place in range(len(diagnosis.ask.requests)))
    message = ", ".join(best) or f"needs {wanted}, no node has them free together"
    free = ", ".join(f"{diagnosis.free[place]} {request.name}" for place, request in enumerate(diagnosis.ask.requests))
    count = sum(group.nodes for group in parts)
    yield Reason(Code.FRAGMENTED, count, f"{message} ({free} free on {nodes_word(count)})")


def _strangers(held: Mapping[str, int]) -> str:
    """Who outside of Adjoin has devices: they appear in no list of claims that could be looked through."""
    return f" ({sum(held.values())} held by {listed(sorted(held))})" if held else ""


def _some_free(group: Group) -> bool:
    return any(mask & group.free for mask in group.sort.eligible)


def _host(diagnosis: Diagnosis) -> Iterator[Reason]:
    """Nodes that have the devices and too little beside them."""
    groups = [group for group in diagnosis.groups if group.fits and not group.room and not group.closed]
    if not groups or diagnosis.rooms is None:
        return
    asked, rooms = diagnosis.ask.host, diagnosis.rooms
    positions = [position for group in groups for position in group.positions]
    short = []
    for need, left, told, wanted, what in (
        (asked.cpu_milli, rooms.cpu_milli, cores, cores, "CPU"),
        (asked.memory_bytes, rooms.memory_bytes, size, needed, "memory"),
    ):
        most = max(int(left[position]) for position in positions)
        if most < need:
            short.append(f"needs {wanted(need)} {what}, best has {told(max(0, most))}")
    both = f"needs {cores(asked.cpu_milli)} CPU and {needed(asked.memory_bytes)} memory, none has both"
    yield Reason(Code.HOST_RESOURCES, len(positions), f"{nodes_word(len(positions))}: {', '.join(short) or both}")


def _releasing(diagnosis: Diagnosis) -> Iterator[Reason]:
    groups = [group for group in diagnosis.groups if Help.RELEASING in group.helps]
    if groups:
        count = sum(group.nodes for group in groups)
        names = listed([diagnosis.index.views[at].name for at in _first(groups)], count)
        yield Reason(
            Code.DEVICE_RELEASING, count, f"{nodes_word(count)} would fit with devices that are being released: {names}"
        )


def _closed(diagnosis: Diagnosis) -> Iterator[Reason]:
    groups = [group for group in diagnosis.groups if group.closed and group.fits and group.room]
    if groups:
        count = sum(group.nodes for group in groups)
        why = [f"{diagnosis.index.views[at].name} {diagnosis.index.closed[at][1]}" for at in _first(groups)]
        yield Reason(Code.NODE_UNAVAILABLE, count, f"{nodes_word(count)} would fit, but {listed(why, count)}")


def _devices(diagnosis: Diagnosis, groups: Iterable[Group], what: Help, *, rivals: bool = False) -> list[str]:
    """Devices of the asked kinds that are not free for this reason, with why; with `rivals` all devices of their
    cards that are not.
    """
    found = []
    for group in groups:
        eligible = 0
        for mask in group.sort.eligible:
            eligible |= mask
        if rivals and group.shape.counters is not None:
            eligible = group.shape.counters.rivals(eligible)
        if not group.spare[what] & eligible:
            continue
        for position in group.positions:
            view = diagnosis.index.views[position]
            for device in bits(spared(diagnosis.masks(position))[what] & eligible):
                detail = view.devices[device].standing_detail
                found.append(f"{view.name}/{view.devices[device].id.device}" + (f" ({detail})" if detail else ""))
    return found


def _unhealthy(diagnosis: Diagnosis) -> Iterator[Reason]:
    for code, what in ((Code.UNHEALTHY, Help.UNHEALTHY), (Code.QUARANTINED, Help.QUARANTINED)):
        groups = [group for group in diagnosis.groups if what in group.helps]
        if groups:
            # A whole card may wait for a partition of it alone, and the other way round.
            devices = _devices(diagnosis, groups, what) or _devices(diagnosis, groups, what, rivals=True)
            count = sum(group.nodes for group in groups)
            yield Reason(code, count, f"{len(devices)} {what} where it would fit otherwise: {listed(devices)}")


def _driver(diagnosis: Diagnosis) -> Iterator[Reason]:
    """Devices whose ResourceSlices are incomplete, or whose guard is not in place yet: neither can be given now."""
    pool = diagnosis.index.pool
    helped = [group for group in diagnosis.groups if Help.WITHHELD in group.helps]
    with_some = [group for group in diagnosis.groups if _devices(diagnosis, [group], Help.WITHHELD)]
    # What an incomplete driver pool still shows tells which kinds it has, also where claims hold all of that.
    shown = {kind for kind, standing in diagnosis.index.tally if standing is Standing.WITHHELD}
    asked = {request.kind for request in diagnosis.ask.requests}
    withheld = [message for message in pool.withheld if asked & _kinds(message, pool, shown, asked)]
    if withheld:
        count = sum(group.nodes for group in helped or with_some)
        yield Reason(Code.DRIVER_UNAVAILABLE, count, f"incomplete inventory: {listed(withheld)}")
    unguarded = [group for group in diagnosis.groups if Help.UNGUARDED in group.helps]
    if unguarded:
        devices = _devices(diagnosis, unguarded, Help.UNGUARDED)
        number = f"{counted(len(devices), 'device')} {'is' if len(devices) == 1 else 'are'}"
        yield Reason(
            Code.DRIVER_UNAVAILABLE,
            sum(group.nodes for group in unguarded),
            f"{number} not guarded yet by a DeviceTaintRule, and can be given once that is so",
        )


def _kinds(message: str, pool: Pool, shown: set[str], asked: set[str]) -> set[str]:
    """Names of devices that may be among what a driver pool does not publish now."""
    possible = set(pool.withheld_kinds.get(message, shown or asked))
    return possible & shown or possible


def _limit(diagnosis: Diagnosis) -> Iterator[Reason]:
    count = sum(group.nodes for group in diagnosis.groups if group.limit)
    if count:
        yield Reason(Code.SEARCH_LIMIT, count, f"{nodes_word(count)}: the search was given up, too many combinations")


# Required lines


def _lines(diagnosis: Diagnosis) -> Iterator[Reason]:
    blocked: dict[Blocker, list[Group]] = {}
    hints: dict[Blocker, Scope] = {}
    for group in diagnosis.groups:
        for blocker in group.blockers:
            blocked.setdefault(blocker, []).append(group)
            if blocker.hint:
                hints[blocker] = blocker.hint
    found = []
    for blocker, groups in blocked.items():
        count = sum(group.nodes for group in groups)
        if blocker.attribute is not None:
            line = diagnosis.ask.signature.attributes[blocker.attribute]
            code = Code.ATTRIBUTE_MISSING if blocker.unknown else Code.TOPOLOGY_UNSATISFIED
            what = _attribute(diagnosis, line, blocker, groups)
        else:
            assert blocker.scope is not None
            scope = diagnosis.ask.signature.scopes[blocker.scope]
            code = Code.TOPOLOGY_UNKNOWN if blocker.unknown else Code.TOPOLOGY_UNSATISFIED
            what = _scope(diagnosis, scope, blocker, groups)
            what += f"; {hints[blocker]} would fit" if blocker in hints else ""
        found.append(Reason(code, count, f"{nodes_word(count)}: {what}"))
    order = (Code.ATTRIBUTE_MISSING, Code.TOPOLOGY_UNKNOWN, Code.TOPOLOGY_UNSATISFIED)
    yield from sorted(found, key=lambda reason: (order.index(reason.code), -reason.nodes, reason.message))


def _candidates(group: Group, requests: Iterable[int]) -> int:
    mask = 0
    for request in requests:
        mask |= group.sort.eligible[request]
    return mask & group.free


def _scope(diagnosis: Diagnosis, line: ScopeLine, blocker: Blocker, groups: Sequence[Group]) -> str:
    names = [diagnosis.ask.requests[request].name for request in line.requests]
    if not blocker.unknown:
        if len(names) == 1:
            free = max(_candidates(group, line.requests).bit_count() for group in groups)
            needed = diagnosis.needed[line.requests[0]]
            return f"no {needed} of {free} free {names[0]} are within {line.scope} of each other"
        others = " and ".join(_amount(diagnosis, request) for request in line.requests[1:])
        free = max(_candidates(group, line.requests[:1]).bit_count() for group in groups)
        wanted = _amount(diagnosis, line.requests[0])
        return f"no {others} within {line.scope} of {wanted} ({free} {names[0]} free)"
    between = f"within {names[0]}" if len(names) == 1 else f"between {' and '.join(names)}"
    fact = FACTS.get(line.scope)
    if fact is None:
        return f"{line.scope} {between} is unknown: no topology matrix says it"
    lacking, total = 0, 0
    for group in groups:
        candidates = _candidates(group, line.requests)
        known = group.shape.wiring.facts[line.scope]
        lacking += sum(known[device] is None for device in bits(candidates)) * group.nodes
        total += candidates.bit_count() * group.nodes
    return f"{line.scope} {between} is unknown: {fact} missing on {lacking} of {counted(total, 'candidate')}"


def _attribute(diagnosis: Diagnosis, line: AttributeLine, blocker: Blocker, groups: Sequence[Group]) -> str:
    if blocker.unknown:
        lacking, total = 0, 0
        for group in groups:
            known = 0
            for mask in group.sort.values[blocker.attribute or 0]:
                known |= mask
            candidates = _candidates(group, line.requests)
            lacking += (candidates & ~known).bit_count() * group.nodes
            total += candidates.bit_count() * group.nodes
        return f"{line.attribute} missing on {lacking} of {counted(total, 'candidate')}"
    need = sum(diagnosis.needed[request] for request in line.requests)
    best = max(_most(diagnosis, blocker, group) for group in groups)
    if line.distinct:
        return f"{best} of {counted(need, 'distinct device')} available ({line.attribute})"
    return f"{best} of {counted(need, 'device')} with one value available ({line.attribute})"


def _most(diagnosis: Diagnosis, blocker: Blocker, group: Group) -> int:
    """How many devices of the line's requests could be had together under this line alone."""
    line = diagnosis.ask.signature.attributes[blocker.attribute or 0]
    shared = group.sort.values[blocker.attribute or 0]
    candidates = _candidates(group, line.requests)
    if not line.distinct:
        return max((mask & candidates).bit_count() for mask in (*shared, 0))
    return _most_distinct([mask & candidates for mask in shared if mask & candidates])


def _most_distinct(shared: Sequence[int]) -> int:
    """The most devices of which no two share a value: exact, except that of very many lists that overlap in one another
    those of the fewest values are taken first.
    """
    holders: dict[int, int] = {}
    for value, mask in enumerate(shared):
        for device in bits(mask):
            holders[device] = holders.get(device, 0) | 1 << value
    # Who has all values of another, and more, is never needed: that one takes its place.
    lists = sorted(set(holders.values()), key=lambda values: (values.bit_count(), values))
    kept: list[int] = []
    for values in lists:
        if not any(not fewer & ~values for fewer in kept):
            kept.append(values)
    most = 0
    while kept:
        # Values that hang together through lists; what is in no list is alone.
        together, border = 0, kept[0]
        while border:
            together |= border
            border = 0
            for values in kept:
                border |= values if values & together else 0
            border &= ~together
        most += _most_apart([values for values in kept if values & together])
        kept = [values for values in kept if not values & together]
    return most


MOST_LISTS = 14
"""So many overlapping lists are tried in every combination."""


def _most_apart(lists: Sequence[int]) -> int:
    """The most of these without a common value."""
    if len(lists) > MOST_LISTS:
        used = count = 0
        for values in lists:
            if not used & values:
                used, count = used | values, count + 1
        return count
    most = {0: 0}
    for values in lists:
        for used, count in list(most.items()):
            if not used & values:
                most[used | values] = max(most.get(used | values, 0), count + 1)
    return max(most.values())


# All nodes by class


def _summary(diagnosis: Diagnosis) -> str:
    """`8 nodes: 3 full, 2 fragmented (max 3 of 4), 1 unhealthy, 1 cordoned, 1 topology`: each node in the class that
    says most about it. Empty when the pool has fewer than two nodes.
    """
    total = len(diagnosis.index.views)
    if total < 2:
        return ""
    counts: dict[str, int] = {}
    fragmented = []
    for group in diagnosis.groups:
        word = _class(group)
        counts[word] = counts.get(word, 0) + group.nodes
        if word == FRAGMENTED:
            fragmented.append(group)
    parts = []
    for word in sorted(counts, key=_CLASSES.index):
        text = f"{counts[word]} {word}"
        parts.append(text + _most_free(diagnosis, fragmented) if word == FRAGMENTED else text)
    return f"{nodes_word(total)}: {', '.join(parts)}"


FRAGMENTED = "fragmented"
HOST = "without host resources"
_CLASSES = (
    "full",
    FRAGMENTED,
    Help.RELEASING.value,
    Help.UNHEALTHY.value,
    Help.QUARANTINED.value,
    Help.WITHHELD.value,
    Help.UNGUARDED.value,
    CORDONED,
    NOT_READY,
    TAINTED,
    DELETING,
    GONE,
    HOST,
    "topology",
    "search limit",
    "too small",
    "without such devices",
)


def _class(group: Group) -> str:
    if not all(group.sort.eligible):
        return "without such devices"
    if not group.roomy:
        return "too small"
    if group.fits:
        return group.closed or HOST
    if group.limit:
        return "search limit"
    if group.helps:
        return group.helps[0].value
    if group.together:
        return "topology"
    return FRAGMENTED if all(mask & group.free for mask in group.sort.eligible) else "full"


def _most_free(diagnosis: Diagnosis, groups: Sequence[Group]) -> str:
    """The request that falls short, with the most devices of it that one of these nodes has free."""
    requests = diagnosis.ask.requests
    for place, request in enumerate(requests):
        most = max(group.most[place] for group in groups)
        if most < diagnosis.needed[place]:
            name = f" {request.name}" if len(requests) > 1 else ""
            return f" (max {most} of {diagnosis.needed[place]}{name})"
    return ""
