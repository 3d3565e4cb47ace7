"""Why members of a gang have no place, in words, and the smallest change with which they would.

In come a gang and a ledger in which everything that could be placed is; out come reasons, each with a code and numbers,
and the nearest edit. Both are found by putting "what if" questions to `gang.arrange`, which also places: without the
fabric, were all devices free, were those on their way back free, were a line another one. Nothing is taken here.

Edits are tried one at a time, the mildest first: a fabric level one coarser, two coarser, …, Preferred instead of
Required; no segments; an attribute over each replica instead of the gang; a scope one step farther; fewer members; an
attribute line or a selector dropped; fewer devices. If none helps alone, all conditions on the fabric are dropped.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from adjoin_allocator.alternatives import ways
from adjoin_allocator.amounts import counted
from adjoin_allocator.cost import Mode
from adjoin_allocator.diagnosis import diagnose
from adjoin_allocator.explain import nodes_word, reasons
from adjoin_allocator.fabric import WHOLE, FabricTree
from adjoin_allocator.fit import STATE_LIMIT, relaxed
from adjoin_allocator.gang import AS_IT_IS, Outcome, WhatIf, arrange, gang_of, seats_of
from adjoin_allocator.hosts import NOTHING
from adjoin_allocator.members import Gang
from adjoin_allocator.model import Affinity, Claim, Fabric, Request
from adjoin_allocator.place import Ask, Placer
from adjoin_allocator.results import Code, Reason
from adjoin_allocator.seats import SeatMemo
from adjoin_allocator.shortage import share_refusals, shortage, smaller_parts
from adjoin_allocator.terms import SCOPES, Policy, Standing

NAMED = 3
"""How many nodes or members a sentence names before it only counts."""

Edit = tuple[str, Claim]
"""The change in words, and the claim with it."""


Affordable = Callable[[tuple[Request, ...], int], bool]
"""Whether a tenant's quota allows so many members more that ask this."""


@dataclass(frozen=True, slots=True, eq=False)
class Desk:
    """Where questions are put."""

    placer: Placer
    memo: SeatMemo
    tree: FabricTree

    def ask(self, gang: Gang, what_if: WhatIf = AS_IT_IS) -> Outcome:
        """How much could be had of a gang."""
        return arrange(self.placer, self.memo, self.tree, gang, what_if=what_if, count_only=True)

    def edited(self, gang: Gang, claim: Claim) -> Gang:
        """The gang with an edited claim."""
        pool = self.tree.index.pool
        same = claim.requests == gang.claim.requests and claim.affinity == gang.claim.affinity
        asks = gang.asks
        if not same:
            parts = self.placer.ledger.parts
            asks = tuple(
                self.placer.ask(pool, way, claim.affinity, claim.host, claim.profile)
                for way in ways(claim.requests)
                if not share_refusals(claim, way, parts.shares, parts.refusal)
            )
        present = {one.index for one in claim.placed if one.index not in gang.missing}
        return gang_of(self.placer, claim, asks, [at for at in claim.members if at not in present])


def explain_gang(
    desk: Desk, gang: Gang, affordable: Affordable = lambda *_: True
) -> tuple[tuple[Reason, ...], str | None]:
    """The reasons, the most actionable first (there is always one), and the nearest change that is affordable."""
    outcome = desk.ask(gang)
    nodes = len(desk.tree.index.views)
    if outcome.limit:
        message = f"the search was given up after {STATE_LIMIT:,} states on {nodes_word(nodes)}"
        return (Reason(Code.SEARCH_LIMIT, nodes, message),), None
    teller = _Teller(desk, gang, outcome)
    found = list(dict.fromkeys(teller.causes()))
    if gang.claim.gang_min is not None or not found:
        found.append(teller.incomplete())
    return tuple(found), nearest_gang(desk, gang, outcome, affordable)


def incomplete(desk: Desk, gang: Gang) -> Reason:
    """How many members are in place, of a gang of which others wait."""
    return _Teller(desk, gang, desk.ask(gang)).incomplete()


@dataclass(frozen=True, slots=True, eq=False)
class _Teller:
    """Puts what is known of one gang into words."""

    desk: Desk
    gang: Gang
    outcome: Outcome

    @property
    def needed(self) -> int:
        """How many of the missing members must be placed together."""
        return self.gang.least

    def incomplete(self) -> Reason:
        """`12 of 16 members fit, rack r2 has most: 12`."""
        gang, outcome, tree = self.gang, self.outcome, self.desk.tree
        claim = gang.claim
        if gang.held:
            present = claim.size - len(gang.missing)
            lost = ", ".join(map(str, gang.missing[:NAMED]))
            more = len(gang.missing) - NAMED
            what = f"members {lost}" + (f" and {more} more have" if more > 0 else " have")
            what = f"member {lost} has" if len(gang.missing) == 1 else what
            are = "is" if present == 1 else "are"
            message = f"{present} of {counted(claim.size, 'member')} {are} in place, {what} no place"
        else:
            wanted = counted(self.needed, "member")
            if self.needed < claim.size:
                wanted = f"at least {wanted}"
            message = f"{outcome.most} of {wanted} {'fits' if self.needed == 1 else 'fit'}"
            level = tree.level(claim.fabric.required)
            if level != WHOLE and outcome.most and outcome.shortage is not None:
                message += f", {tree.told(level, outcome.shortage.domain)} has most: {outcome.most}"
        return Reason(Code.GANG_INCOMPLETE, outcome.nodes, message)

    def causes(self) -> Iterator[Reason]:
        """What stands in the way."""
        desk, gang, outcome = self.desk, self.gang, self.outcome
        if outcome.strange:
            yield Reason(
                Code.TOPOLOGY_UNSATISFIED, len(gang.held), f"members in place share no value of {outcome.strange}"
            )
            return
        if outcome.apart is not None:
            yield self._apart(outcome.apart)
            return
        loose = desk.ask(desk.edited(gang, replace(gang.claim, fabric=Fabric())))
        single = tuple(replace(line, over_gang=False) for line in gang.claim.affinity)
        alone = loose
        bare = desk.edited(gang, replace(gang.claim, affinity=single, fabric=Fabric()))
        if single != gang.claim.affinity:
            alone = desk.ask(bare)
        if loose.most >= self.needed:
            yield from self._fabric(loose.most)
        elif alone.most >= self.needed:
            yield from self._values(loose.most)
        yield from self._helps()
        # Whether devices are too few is asked of nodes whose hosts have room for any number.
        devices = desk.ask(bare, WhatIf(hosts_count=False)) if gang.claim.host != NOTHING else alone
        if devices.most < self.needed:
            yield from self._scarce(devices.most)

    # The fabric

    def _apart(self, level: int) -> Reason:
        tree = self.desk.tree
        domains = tree.domains(level)
        places = sorted(set(self.gang.held.values()))
        name = tree.layers[level].level
        unknown = [at for at in places if domains[at] < 0]
        if unknown:
            message = " and ".join(tree.unlabelled_words(level, unknown, " with members in place"))
            return Reason(Code.TOPOLOGY_UNKNOWN, len(unknown), message)
        told = [tree.told(level, int(at)) for at in sorted({int(domains[at]) for at in places})]
        return Reason(
            Code.TOPOLOGY_UNSATISFIED,
            len(places),
            f"members in place lie in {len(told)} domains of level {name.name} ({_listed(told)}), not in one",
        )

    def _fabric(self, most: int) -> Iterator[Reason]:
        """Enough fit in the pool, but not under one domain, or not in segments."""
        desk, gang, tree = self.desk, self.gang, self.desk.tree
        fabric = gang.claim.fabric
        levels = [tree.level(fabric.required)]
        levels += [tree.level(fabric.segment.level)] if fabric.segment is not None else []
        for level in dict.fromkeys(level for level in levels if level != WHOLE):
            rooms = self._rooms()
            lacking = [int(at) for at in tree.unlabelled(level) if rooms.get(int(at))]
            if lacking and self.outcome.most + sum(rooms[at] for at in lacking) >= self.needed:
                missing = " and ".join(tree.unlabelled_words(level, lacking))
                lie = f"{'lies' if len(lacking) == 1 else 'lie'} in no {tree.layers[level].level.name}"
                names = _listed(self._names(lacking))
                yield Reason(Code.TOPOLOGY_UNKNOWN, len(lacking), f"{missing}, and so {lie}: {names}")
        what, where = self._condition(fabric)
        whole = desk.ask(gang, WhatIf(spare=self._empty()))
        wanted = "needs 1 more member" if gang.held else f"needs {counted(self.needed, 'member')}"
        if whole.most >= self.needed:
            message = f"{wanted} {what}, "
            message += f"{where} has most free: {self.outcome.most}" if self.outcome.most else "no place has one free"
            yield Reason(Code.FRAGMENTED, self.outcome.nodes, f"{message} ({most} in the pool)")
        else:
            fit = f"at most {whole.most} fit" if whole.most else "none fits"
            message = f"{wanted} {what}, {fit} so even when all is free"
            yield Reason(Code.TOPOLOGY_UNSATISFIED, self.outcome.nodes, message)

    def _condition(self, fabric: Fabric) -> tuple[str, str]:
        """The condition in words, and where most is free."""
        tree = self.desk.tree
        level, shortage = tree.level(fabric.required), self.outcome.shortage
        what = f"in one {fabric.required}" if fabric.required else ""
        if fabric.segment is not None:
            what += (" and " if what else "") + f"in segments of {fabric.segment.size} by {fabric.segment.level}"
        some = shortage is not None and shortage.most > 0 and level != WHOLE
        return what, tree.told(level, shortage.domain) if some and shortage is not None else "the pool"

    def _empty(self) -> dict[int, int]:
        """What would be free too, were nothing given out."""
        ledger = self.desk.placer.ledger.pools[self.gang.claim.pool]
        taken = {at: view.offered & ~ledger.open[at] for at, view in enumerate(ledger.index.views)}
        mine = self._mine()
        return {at: mask & ~mine.get(at, 0) for at, mask in taken.items() if mask & ~mine.get(at, 0)}

    def _mine(self) -> Mapping[int, int]:
        """Devices of members in place."""
        index = self.desk.tree.index
        found: dict[int, int] = {}
        for one in self.gang.claim.placed:
            position = self.gang.held.get(one.index)
            if position is not None:
                for device in one.devices:
                    bit = index.views[position].bit.get(device.id)
                    if bit is not None:
                        found[position] = found.get(position, 0) | 1 << bit
        return found

    def _rooms(self) -> dict[int, int]:
        """By position of an open node how many members it holds."""
        seats = seats_of(self.desk.placer, self.desk.memo, self.gang)
        return {at: seats.capacity(key) for key, positions in seats.groups().items() for at in positions}

    def _names(self, positions: Sequence[int]) -> list[str]:
        return [self.desk.tree.index.views[at].name for at in positions]

    # Values over the gang

    def _values(self, most: int) -> Iterator[Reason]:
        """Enough fit, but not with one value for all, or with no value twice."""
        index = self.desk.tree.index
        for line in self.gang.claim.affinity:
            if not line.over_gang:
                continue
            kinds = {request.kind for request in self.gang.claim.requests if request.name in line.requests}
            lacking = total = 0
            for view in index.views:
                mask = 0
                for kind in kinds:
                    mask |= view.shape.kinds.get(kind, 0)
                known = 0
                for having in view.sharing(line.attribute).values():
                    known |= having
                total += mask.bit_count()
                lacking += (mask & ~known).bit_count()
            if lacking:
                yield Reason(
                    Code.ATTRIBUTE_MISSING,
                    self.outcome.nodes,
                    f"{line.attribute} missing on {lacking} of {counted(total, 'candidate')}, which all members must "
                    + ("share" if line.policy is Policy.MATCH else "differ in"),
                )
            how = "one value" if line.policy is Policy.MATCH else "a value of its own"
            yield Reason(
                Code.TOPOLOGY_UNSATISFIED,
                self.outcome.nodes,
                f"needs {counted(self.needed, 'member')} with {how} of {line.attribute}, at most {most} can be had",
            )

    # What is not free now

    def _helps(self) -> Iterator[Reason]:
        """Each of these alone would make it fit."""
        ledger = self.desk.placer.ledger.pools[self.gang.claim.pool]
        index = ledger.index
        special = sorted(index.odd | ledger.returning)
        back = {at: ledger.back(at) & index.views[at].offered for at in special}
        told: list[tuple[Code, Mapping[int, int], Callable[[int, list[str]], str]]] = [
            (Code.DEVICE_RELEASING, back, lambda _, names: f"devices that are being released on {_listed(names)}"),
        ]
        for code, standing, word in (
            (Code.UNHEALTHY, Standing.UNHEALTHY, "unhealthy"),
            (Code.QUARANTINED, Standing.QUARANTINED, "quarantined"),
            (Code.DRIVER_UNAVAILABLE, Standing.WITHHELD, "withheld"),
            (Code.DRIVER_UNAVAILABLE, Standing.UNGUARDED, "not yet guarded"),
        ):
            unheld = {at: index.views[at].standing[standing] & ~ledger.held(at) for at in special}
            told.append((code, unheld, _counted(word)))
        for code, masks, words in told:
            spare = {at: mask for at, mask in masks.items() if mask and at not in index.closed}
            if spare and self.desk.ask(self.gang, WhatIf(spare=spare)).most >= self.needed:
                devices = sum(mask.bit_count() for mask in spare.values())
                yield Reason(code, len(spare), f"would fit with {words(devices, self._names(sorted(spare)))}")
        shut = frozenset(index.closed)
        if shut and self.desk.ask(self.gang, WhatIf(opened=shut)).most >= self.needed:
            why = [f"{index.views[at].name} {index.closed[at][1]}" for at in sorted(shut)]
            yield Reason(Code.NODE_UNAVAILABLE, len(shut), f"would fit, but {_listed(why)}")
        if self.gang.claim.host != NOTHING and self.desk.ask(self.gang, WhatIf(hosts_count=False)).most >= self.needed:
            message = f"needs {counted(self.needed, 'member')}, hosts have CPU and memory for {self.outcome.most}"
            yield Reason(Code.HOST_RESOURCES, self.outcome.nodes, message)

    # Too little in the whole pool

    def _scarce(self, most: int) -> Iterator[Reason]:
        desk, gang = self.desk, self.gang
        ask = gang.asks[0]
        if not most:
            short = shortage(desk.placer, ask)
            yield from reasons(diagnose(desk.placer, ask)) if short is None else short[0]
            return
        blocked = self._blocked(ask)
        if blocked is not None:
            yield blocked
            return
        ledger = desk.placer.ledger.pools[ask.pool]
        seats = seats_of(desk.placer, desk.memo, gang)
        groups = seats.groups().items()
        sorts = desk.placer.nodes.sorts(ledger.index, ask.question)
        short_of: dict[Code, list[str]] = {}
        enough: list[str] = []
        members = counted(self.needed, "member")
        for place, request in enumerate(ask.requests):
            free = sum(seats.supply(key, 0)[place] * len(positions) for key, positions in groups)
            wanted = self.needed * request.count
            if request.share is not None:
                wanted = self.needed if request.same_device else wanted
                if free < wanted:
                    told = f"needs {counted(wanted, 'part')} of {request.kind} for {members}, {free} can be had"
                    short_of.setdefault(Code.SHARE_UNAVAILABLE, []).append(told)
                enough.append(f"{counted(free, 'part')} of {request.kind}")
                continue
            total = sum(sorts[at].eligible[place].bit_count() for _, positions in groups for at in positions)
            if free < wanted:
                told = f"needs {wanted} {request.name} for {members}, {free} of {total} free"
                short_of.setdefault(Code.INSUFFICIENT_DEVICES, []).append(told)
            enough.append(f"{free} {request.name}")
        nodes = len(ledger.index.views)
        for code, told_short in short_of.items():
            yield Reason(code, nodes, ", ".join(told_short))
        if not short_of:
            message = f"{' and '.join(enough)} free, but together on nodes only for {most} of {members}"
            yield Reason(Code.FRAGMENTED, self.outcome.nodes, message)

    def _blocked(self, ask: Ask) -> Reason | None:
        """Nodes have the devices, but Required lines in the node keep members out."""
        scopes = [at for at, line in enumerate(ask.signature.scopes) if line.required]
        lines = range(len(ask.signature.attributes))
        for mode, code, what in (
            (Mode.LENIENT, Code.TOPOLOGY_UNKNOWN, "not known to be near enough or equal"),
            (Mode.OFF, Code.TOPOLOGY_UNSATISFIED, "not near enough or not equal"),
        ):
            form = self.desk.placer.fitter.form(
                relaxed(ask.signature, dict.fromkeys(scopes, mode), dict.fromkeys(lines, mode))
            )
            loose = replace(self.gang, asks=(replace(ask, form=form),), claim=replace(self.gang.claim, fabric=Fabric()))
            if form is not ask.form and self.desk.ask(loose).most >= self.needed:
                named = [line.scope.value for line in ask.signature.scopes if line.required]
                named += [line.attribute for line in ask.signature.attributes]
                message = f"devices of further members are {what} ({', '.join(dict.fromkeys(named))})"
                return Reason(code, self.outcome.nodes, message)
        return None


def _counted(word: str) -> Callable[[int, list[str]], str]:
    return lambda devices, names: f"{counted(devices, f'{word} device')} on {_listed(names)}"


def _listed(names: Sequence[str]) -> str:
    more = len(names) - NAMED
    return ", ".join(names[:NAMED]) + (f" and {more} more" if more > 0 else "")


# The nearest change


def nearest_gang(desk: Desk, gang: Gang, outcome: Outcome, affordable: Affordable = lambda *_: True) -> str | None:
    """`fits with fabric.required block instead of rack`, or None when no such change helps. The claim with the change
    is planned in the same ledger to prove it.
    """
    for words, claim in _edits(desk, gang, outcome):
        changed = desk.edited(gang, claim)
        if affordable(claim.requests, changed.least) and desk.ask(changed).most >= changed.least:
            return words
    return None


def _edits(desk: Desk, gang: Gang, outcome: Outcome) -> Iterator[Edit]:
    claim = gang.claim
    yield from _fabric_edits(desk.tree, claim)
    for at, line in enumerate(claim.affinity):
        if line.over_gang:
            words = f"fits with {line.policy} of {line.attribute} over Replica instead of Gang"
            yield words, _with_line(claim, at, replace(line, over_gang=False))
    for steps in range(1, len(SCOPES)):
        for at, line in enumerate(claim.affinity):
            if line.scope is not None and line.policy is Policy.REQUIRED and line.scope.rank + steps < len(SCOPES):
                farther = SCOPES[line.scope.rank + steps]
                words = f"fits with scope {farther} instead of {line.scope} over {', '.join(line.requests)}"
                yield words, _with_line(claim, at, replace(line, scope=farther))
    yield from _fewer_members(gang, outcome)
    for at, line in enumerate(claim.affinity):
        if line.scope is None:
            kept = (*claim.affinity[:at], *claim.affinity[at + 1 :])
            yield f"fits without {line.policy} of {line.attribute}", replace(claim, affinity=kept)
    for at, request in enumerate(claim.requests):
        if request.selectors:
            requests = (*claim.requests[:at], replace(request, selectors=()), *claim.requests[at + 1 :])
            yield f"fits without the selectors of request {request.name}", replace(claim, requests=requests)
    for at, request in enumerate(claim.requests):
        for count in range(request.count - 1, 0, -1):
            requests = (*claim.requests[:at], replace(request, count=count), *claim.requests[at + 1 :])
            words = f"fits with count {count} instead of {request.count} in request {request.name}"
            yield words, replace(claim, requests=requests)
    for ask in gang.asks[:1] if not any(request.first_of for request in claim.requests) else ():
        for words, smaller in smaller_parts(desk.placer, ask, gang.least):
            yield words, replace(claim, requests=smaller)
    if claim.fabric.required and claim.fabric.segment is not None:
        yield "fits without fabric.required and fabric.segment", replace(claim, fabric=Fabric())


def _fabric_edits(tree: FabricTree, claim: Claim) -> Iterator[Edit]:
    fabric = claim.fabric
    names = [layer.level.name for layer in tree.layers]
    if fabric.required:
        for level in names[: names.index(fabric.required)][::-1]:
            words = f"fits with fabric.required {level} instead of {fabric.required}"
            yield words, replace(claim, fabric=replace(fabric, required=level))
        softer = replace(fabric, required="", preferred=fabric.preferred or fabric.required)
        yield f"fits with fabric.preferred {fabric.required} instead of required", replace(claim, fabric=softer)
    segment = fabric.segment
    if segment is not None:
        for level in names[: names.index(segment.level)][::-1]:
            words = f"fits with segments by {level} instead of {segment.level}"
            yield words, replace(claim, fabric=replace(fabric, segment=replace(segment, level=level)))
        yield "fits without fabric.segment", replace(claim, fabric=replace(fabric, segment=None))


def _fewer_members(gang: Gang, outcome: Outcome) -> Iterator[Edit]:
    """As many as fit, of a gang that has no member in place."""
    claim = gang.claim
    if gang.held or claim.gang_min is None or not 0 < outcome.most < claim.gang_min:
        return
    if claim.gang_min < claim.size:
        words = f"fits with gang.minReplicas {outcome.most} instead of {claim.gang_min}"
        yield words, replace(claim, gang_min=outcome.most)
    else:
        words = f"fits with {counted(outcome.most, 'replica')} instead of {claim.size}"
        yield words, replace(claim, replicas=outcome.most, gang_min=outcome.most)


def _with_line(claim: Claim, at: int, line: Affinity) -> Claim:
    return replace(claim, affinity=(*claim.affinity[:at], line, *claim.affinity[at + 1 :]))
