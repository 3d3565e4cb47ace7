"""One replica in one node: whether it fits, and the best choice.

In come a claim's signature, a node's shape, which devices are free, which each request may have and who shares which
attribute value; out comes a `Fit` with its objective and devices, or a `Misfit` that says whether counting, a Required
line or the search limit stood in the way. The answer is exact: no choice with a smaller objective (see `cost`) exists.

Where others want something (a sort with stakes), what they lose stands in the objective too. It is only searched for
where the choice that would be made without them costs them something that another might not; until then `Fit.exact` is
False, and the objective is one that no choice can better.

What was answered once is kept by value in `Fitter`, up to a bound; keeping it changes speed and nothing else.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from adjoin_allocator.cost import (
    ISLAND_SCOPES,
    LOAD_UNIT,
    OF_THE_NODE,
    Mode,
    Part,
    Signature,
    Term,
    blocks_lost,
    line_terms,
    packing,
)
from adjoin_allocator.demand import Stake, assumed, lost, places
from adjoin_allocator.hierarchy import Relation, Vertex, grow
from adjoin_allocator.locality import reached
from adjoin_allocator.neighbours import groups, loads
from adjoin_allocator.nodes import Shape, Sort, State, Values
from adjoin_allocator.search import BAN, Clique, Pairing, Problem, SearchLimit, search
from adjoin_allocator.terms import Scope
from adjoin_allocator.topology import Wiring, bits

STATE_LIMIT = 1_000_000
"""States that one search may see."""

WEIGHED_LIMIT = 50_000
"""States that a search may see which only decides what others lose. It fits without it, so past this limit the choice
stays that would be made without others."""


class Obstacle(StrEnum):
    """What kept a replica from fitting in a node."""

    COUNT = "Count"
    """Too few devices, whatever they are wired like."""
    LINES = "Lines"
    """Enough devices, but no choice meets every Required line."""
    LIMIT = "Limit"
    """The search was given up."""
    HOST = "Host"
    """The devices, but too little CPU or memory beside them. Only of all nodes together."""


@dataclass(frozen=True, slots=True)
class Fit:
    """The best choice in a node.

    Attributes:
        objective: Parts 1 to 9 of `cost`, comparable between nodes for one signature.
        masks: Devices by request.
        taken: All of them.
        states: States seen to know that it fits.
        exact: No choice has a smaller objective. If not, this objective is a bound: none has a smaller one, and the
            choice may cost others more than that.
    """

    objective: tuple[int, ...]
    masks: tuple[int, ...]
    taken: int
    states: int
    exact: bool = True


@dataclass(frozen=True, slots=True)
class Misfit:
    """There is none."""

    obstacle: Obstacle
    states: int = 0


@dataclass(frozen=True, slots=True, eq=False)
class Form:
    """An interned signature: equal signatures have the same one, so it can be a key by identity.

    `bound` says that a line could stand in the way where there are enough devices.
    """

    signature: Signature
    bound: bool


class Fitter:
    """Answers and the tables they were made from, kept up to a bound."""

    def __init__(self, bound: int = 50_000) -> None:
        self._bound = bound
        self._kept = 0
        self._forms: dict[Signature, Form] = {}
        self._answers: dict[Form, dict[State, Fit | Misfit]] = {}
        self._weighed: dict[Form, dict[State, Fit | Misfit]] = {}
        self._trees: dict[tuple[object, ...], _Tree] = {}
        self._localities: dict[tuple[Form, Shape, tuple[int, ...]], tuple[tuple[int, int, str], ...]] = {}

    def form(self, signature: Signature) -> Form:
        """The form of a signature."""
        form = self._forms.get(signature)
        if form is None:
            if len(self._forms) >= self._bound // 16:
                self._forget()
            bound = any(line.required and line.mode is not Mode.OFF for line in signature.scopes)
            bound = bound or any(line.mode is not Mode.OFF for line in signature.attributes)
            form = self._forms[signature] = Form(signature, bound)
        return form

    def answers(self, form: Form) -> Mapping[State, Fit | Misfit]:
        """What is remembered for a form."""
        return self._answers.get(form, {})

    def weighed(self, form: Form) -> Mapping[State, Fit | Misfit]:
        """What is remembered for a form of states with others in them."""
        return self._weighed.get(form, {})

    def fit(self, form: Form, state: State) -> Fit | Misfit:
        """The best choice for one replica in nodes of this state, whatever others want."""
        answer = self._answers.get(form, {}).get(state)
        if answer is None:
            answer = self._solve(form, *state)
            self._keep(self._answers, form, state, answer)
        return answer

    def bound(self, form: Form, state: State) -> Fit | Misfit:
        """The best choice where others want something, or a bound for it. Costs a look at the stakes."""
        answer = self._weighed.get(form, {}).get(state)
        if answer is None:
            shape, sort, free = state
            answer = self.fit(form, (shape, sort.bare or sort, free))
            free = shape.usable(free)
            if isinstance(answer, Fit):
                certain = [stake for stake in sort.stakes if not _decides(stake, sort, free)]
                least = _losses(form.signature, shape, sort, certain, free, answer.taken)
                whole = _losses(form.signature, shape, sort, sort.stakes, free, answer.taken)
                answer = replace(answer, objective=_with(form.signature, answer.objective, least), exact=least == whole)
            self._keep(self._weighed, form, state, answer)
        return answer

    def weigh(self, form: Form, state: State, bound: Fit) -> Fit:
        """The best choice where others want something, given its bound."""
        shape, sort, _ = state
        free = shape.usable(state[2])
        stakes = [
            (tuple(mask & free for mask in masks), counts, price)
            for masks, counts, price in sort.stakes
            if places(masks, counts, free) and _decides((masks, counts, price), sort, free)
        ]
        found = self._solve(form, shape, sort, state[2], tuple(stakes))
        fit = found if isinstance(found, Fit) else bound
        loss = _losses(form.signature, shape, sort, sort.stakes, free, fit.taken)
        objective = _with(form.signature, fit.objective, loss)
        answer = replace(fit, objective=objective, states=bound.states, exact=True)
        self._keep(self._weighed, form, state, answer)
        return answer

    def settle(self, form: Form, state: State, bound: Fit, equal: Fit | Misfit) -> Fit:
        """The best choice where others want something, given its bound and the answer to a state that is this one but
        for an exchange of devices.

        The choice of the bound is the best one if it comes to what `equal` comes to: every choice that does is as good
        without others too, and of these the bound's is the first in stable order.
        """
        shape, sort, _ = state
        loss = _losses(form.signature, shape, sort, sort.stakes, shape.usable(state[2]), bound.taken)
        objective = _with(form.signature, bound.objective, loss)
        if not isinstance(equal, Fit) or not equal.exact or objective != equal.objective:
            return self.weigh(form, state, bound)
        answer = replace(bound, objective=objective, exact=True)
        self._keep(self._weighed, form, state, answer)
        return answer

    def fits(self, form: Form, state: State) -> bool:
        """Whether there is a choice at all. Only a claim with Required lines needs a search for that."""
        if not form.bound and state[0].counters is None:
            return enough(form.signature, state[1], state[2])
        return isinstance(self.fit(form, state), Fit)

    def locality(self, form: Form, shape: Shape, masks: tuple[int, ...]) -> tuple[tuple[int, int, str], ...]:
        """For each two requests, and each request of several devices with itself, the farthest level of the pairs
        that count.
        """
        key = (form, shape, masks)
        found = self._localities.get(key)
        if found is None:
            if len(self._localities) >= self._bound:
                self._localities.clear()
            found = self._localities[key] = tuple(reached(form.signature, shape.wiring, masks))
        return found

    def _keep(
        self, where: dict[Form, dict[State, Fit | Misfit]], form: Form, state: State, answer: Fit | Misfit
    ) -> None:
        if self._kept >= self._bound:
            self._forget()
        where.setdefault(form, {})[state] = answer
        self._kept += 1

    def _forget(self) -> None:
        self._forms.clear()
        self._answers.clear()
        self._weighed.clear()
        self._trees.clear()
        self._localities.clear()
        self._kept = 0

    def _solve(self, form: Form, shape: Shape, sort: Sort, state: int, stakes: tuple[Stake, ...] = ()) -> Fit | Misfit:
        signature, free = form.signature, shape.usable(state)
        if not signature.kinds:
            # Host resources alone: every node will do, and no device is taken.
            return Fit(_objective(signature, shape, free, 0, (0,) * signature.carried), (), 0, 0)
        if not enough(signature, sort, free):
            return Misfit(Obstacle.COUNT)
        counts = needed(signature, sort.eligible)
        if shape.counters is not None and any(
            shape.most(state, mask) < count for mask, count in zip(sort.eligible, counts, strict=True)
        ):
            return Misfit(Obstacle.COUNT)
        best: tuple[int, tuple[int, ...], tuple[int, ...]] | None = None
        states, limit = 0, WEIGHED_LIMIT if stakes else STATE_LIMIT
        for allowed in _shared(signature, sort, free, counts):
            narrowed = tuple(mask & free for mask in allowed)
            for excluded in _witnesses(signature, shape.wiring, allowed):
                tree = self._tree(form, shape, allowed, excluded)
                try:
                    found, seen = tree.search(shape, sort, narrowed, counts, state, stakes, limit - states)
                except SearchLimit:
                    return Misfit(Obstacle.LIMIT, limit)
                states += seen
                if found is not None and (best is None or found < best):
                    best = found
        if best is None:
            # Where no line could be in the way, requests need more of the counters together than there is.
            return Misfit(Obstacle.LINES if form.bound or shape.counters is None else Obstacle.COUNT, states)
        _, parts, masks = best
        taken = 0
        for mask in masks:
            taken |= mask
        return Fit(_objective(signature, shape, free, taken, parts), masks, taken, states)

    def _tree(self, form: Form, shape: Shape, allowed: tuple[int, ...], excluded: tuple[int, ...]) -> _Tree:
        key = (form, shape, allowed, excluded)
        tree = self._trees.get(key)
        if tree is None:
            if len(self._trees) >= self._bound // 16:
                self._trees.clear()
            tree = self._trees[key] = _Tree(form.signature, shape, allowed, excluded)
        return tree


def needed(signature: Signature, eligible: Sequence[int]) -> tuple[int, ...]:
    """How many devices each request takes in a node: its count, or all that match there."""
    return tuple(count or mask.bit_count() for count, mask in zip(signature.counts, eligible, strict=True))


def enough(signature: Signature, sort: Sort, free: int) -> bool:
    """Whether a node has as many of these devices as are asked for, whatever they are wired like."""
    counts = needed(signature, sort.eligible)
    if not all(counts):
        return False
    for count, mask in zip(signature.counts, sort.eligible, strict=True):
        if not count and mask & ~free:
            return False
    return countable([mask & free for mask in sort.eligible], counts)


def lacking(signature: Signature, sort: Sort, free: int) -> int:
    """How many devices must come free in a node at least, before there are enough."""
    short = 0
    for count, mask in zip(signature.counts, sort.eligible, strict=True):
        short += (mask & ~free).bit_count() if not count else max(0, count - (mask & free).bit_count())
    return short


def countable(candidates: Sequence[int], counts: Sequence[int]) -> bool:
    """Whether there are disjoint sets of these sizes: by Hall's theorem, whether every group of requests has as many
    candidates together as it needs.
    """
    need: dict[int, int] = {}
    for mask, count in zip(candidates, counts, strict=True):
        need[mask] = need.get(mask, 0) + count
    groups = [(0, 0)]
    for mask, count in need.items():
        if mask.bit_count() < count:
            return False
        # Requests without a common candidate are independent; only overlapping ones need the test of their union.
        overlapping = [(union | mask, together + count) for union, together in groups if not union or union & mask]
        if any(union.bit_count() < together for union, together in overlapping):
            return False
        if len(groups) < GROUPS:
            groups += overlapping
    return True


GROUPS = 4096
"""Groups of requests that counting looks at; beyond, the search itself finds out."""


def _shared(signature: Signature, sort: Sort, free: int, counts: Sequence[int]) -> Iterator[tuple[int, ...]]:
    """The ways to meet all Match lines: by request the devices that are left when each line has settled on one value,
    where enough of them are free.

    Devices without the attribute are left out of lines that need it.
    """
    ways: list[tuple[int, ...]] = [sort.eligible]
    for line, values in zip(signature.attributes, sort.values, strict=True):
        if line.mode is Mode.OFF:
            continue
        known = 0
        for mask in values:
            known |= mask
        spare = ~known if line.mode is Mode.LENIENT else 0
        choices = [known | spare] if line.distinct else [mask | spare for mask in values] or [spare]
        ways = [
            tuple(mask & choice if request in line.requests else mask for request, mask in enumerate(way))
            for way in ways
            for choice in choices
        ]
        ways = [way for way in dict.fromkeys(ways) if countable([mask & free for mask in way], counts)]
    return iter(ways)


def _witnesses(signature: Signature, wiring: Wiring, allowed: Sequence[int]) -> Iterator[tuple[int, ...]]:
    """The ways to meet set-wide conditions of list-valued facts: by scope line the devices that may not be near another
    one by attributes.

    Devices that are near each other by attributes must share one value of one fact over the whole set, so the ways
    are the values: who lacks it cannot be near by attributes. That nobody is near by attributes is a way of its own.
    """
    ways: list[tuple[int, ...]] = [()]
    for line in signature.scopes:
        choices = [0]
        if line.required and line.mode is not Mode.OFF and len(line.requests) == 1 and line.scope in wiring.listed:
            mine = allowed[line.requests[0]]
            choices = [mine]
            for fact, by_device in wiring.facts.items():
                if fact.rank <= line.scope.rank:
                    for value in sorted({value for values in by_device for value in values or ()}):
                        having = sum(1 << at for at, values in enumerate(by_device) if values and value in values)
                        choices.append(mine & ~having)
            # Where fewer devices lack the value, everything is allowed that is where more do.
            choices = [one for one in choices if not any(other != one and not other & ~one for other in choices)]
        ways = [(*way, choice) for way in ways for choice in dict.fromkeys(choices)]
    return iter(ways)


class _Tree:
    """A signature on a wiring, for some candidates: its relations as a tree, and the search on it."""

    def __init__(self, signature: Signature, shape: Shape, allowed: tuple[int, ...], excluded: tuple[int, ...]) -> None:
        self.signature = signature
        self.wiring = wiring = shape.wiring
        self._banned: dict[Term, list[tuple[Scope, Mode, int]]] = {}
        for line, lacking in zip(signature.scopes, excluded, strict=True):
            if line.required and line.mode is not Mode.OFF:
                for term in line_terms(line.requests):
                    self._banned.setdefault(term, []).append((line.scope, line.mode, lacking))
        self._slots: dict[Term, list[int]] = {}
        for place, terms in enumerate(signature.slots):
            for term in terms:
                self._slots.setdefault(term, []).append(place)
        self.terms = tuple(dict.fromkeys((*self._slots, *self._banned)))
        everybody = 0
        for mask in allowed:
            everybody |= mask
        relations = [self._distances(term, allowed) for term in self.terms]
        islands = [
            _island_relation(everybody, wiring.islands[scope])
            for scope in (Scope.NUMA_NODE, Scope.PCIE_ROOT, Scope.PCIE_SWITCH)
        ]
        islands += [_island_relation(mask, wiring.islands[Scope.NVLINK]) for mask in dict.fromkeys(allowed)]
        if shape.counters is not None:
            islands.insert(0, _island_relation(everybody, shape.counters.cards))
        relations += [relation for relation in islands if relation.codes]
        # What is easiest to carry along gives way first: an island costs a counter, a clique the devices below a
        # vertex, a pairing all its devices up to the end.
        distances = range(len(self.terms))
        yielding = [
            *range(len(self.terms), len(relations)),
            *(index for index in distances if not self.terms[index].right),
            *(index for index in distances if self.terms[index].right),
        ]
        self.tree: Vertex = grow(everybody, relations, yielding)

    def code(self, relation: int, one: int, other: int) -> int:
        """Ban, rank and fine of two devices under a term, as far as the term cares for each."""
        return self._code(self.terms[relation], one, other)

    def _code(self, term: Term, one: int, other: int) -> int:
        wiring = self.wiring
        code = wiring.rank[one][other] << 32 | wiring.fine[one][other] if term in self._slots else 0
        for scope, mode, lacking in self._banned.get(term, ()):
            near = wiring.met[scope][one] | (wiring.unknown[scope][one] if mode is Mode.LENIENT else 0)
            if not near >> other & 1:
                return code | BAN
            if lacking >> one & 1 | lacking >> other & 1 and wiring.by_facts[scope][one] >> other & 1:
                return code | BAN
        return code

    def _distances(self, term: Term, allowed: Sequence[int]) -> Relation:
        sides = [0, 0]
        for side, requests in enumerate((term.left, term.right or term.left)):
            for request in requests:
                sides[side] |= allowed[request]
        return Relation.of(sides[0], sides[1], lambda one, other: self._code(term, one, other))

    def search(
        self,
        shape: Shape,
        sort: Sort,
        candidates: tuple[int, ...],
        counts: tuple[int, ...],
        state: int,
        stakes: tuple[Stake, ...],
        limit: int,
    ) -> tuple[tuple[int, tuple[int, ...], tuple[int, ...]] | None, int]:
        """(whole cost, parts of the objective without 4, masks) of the best choice, or None, and the states seen.

        Raises:
            SearchLimit: More than `limit` states.
        """
        free, counters = shape.usable(state), shape.counters
        losses = () if counters is None else tuple(counters.losses(state))
        everybody = 0
        for mask in candidates:
            everybody |= mask
        least, top = min(shape.performance, default=0), max(shape.priority, default=0)
        total = sum(counts)
        order = self.signature.order
        pairs = total * total
        finest = max((max(row, default=0) for row in self.wiring.fine), default=0)
        load = loads(self.wiring, free, LOAD_UNIT) if Part.NUMA_LOAD in order else ()
        packed = packing(
            order,
            {
                Part.NUMA_NODES: (total,),
                Part.BUSY: (shape.size,),
                Part.DISTANCES: (8 * pairs, 2 * finest * pairs) * len(self.signature.slots),
                Part.NUMA_LOAD: (LOAD_UNIT * total,),
                Part.CARDS: (sum(price for _, price in losses),),
                Part.DEMAND: (sum(price * places(masks, counts_, free) for masks, counts_, price in stakes),),
                Part.WHOLE: (shape.size,) * len(ISLAND_SCOPES),
                Part.WASTE: ((max(shape.performance, default=0) - least) * total,),
                Part.PRIORITY: ((top - min(shape.priority, default=0)) * total,),
            },
            tail=shape.size * len(counts),
        )
        (waste,), (priority,), (demand,) = (packed.shifts[p] for p in (Part.WASTE, Part.PRIORITY, Part.DEMAND))
        own = [
            (shape.performance[at] - least << waste) + (top - shape.priority[at] << priority) for at in bits(everybody)
        ]
        linear = dict(zip(bits(everybody), own, strict=True))
        broken = [
            (mask, mask.bit_count() << shift)
            for scope, shift in zip(ISLAND_SCOPES, packed.shifts[Part.WHOLE], strict=True)
            for mask in self.wiring.islands[scope]
            if not mask & ~free and mask & everybody
        ]
        if Part.CARDS in order:
            broken += [(mask, price << packed.shifts[Part.CARDS][0]) for mask, price in losses]
        if Part.NUMA_LOAD in order:
            for at in linear:
                linear[at] += load[at] << packed.shifts[Part.NUMA_LOAD][0]
        if Part.NUMA_NODES in order:
            (numa,), (busy,) = packed.shifts[Part.NUMA_NODES], packed.shifts[Part.BUSY]
            here = groups(self.wiring)
            broken += [
                (mask, (1 << numa) + ((mask & ~free).bit_count() << busy)) for mask in here.known if mask & everybody
            ]
            broken.append((here.unknown, (here.unknown & ~free).bit_count() << busy))
            for at in bits(here.unknown & everybody):
                linear[at] += 1 << numa

        cliques, pairings = [], []
        for relation, term in enumerate(self.terms):
            weights = [packed.slots[place] for place in self._slots.get(term, ())]
            weight = _Weight(weights)
            if term.right:
                pairings.append(Pairing(term.left, term.right, relation, weight))
            else:
                cliques.append(Clique(term.left, relation, weight))
        found, states = search(
            Problem(
                candidates=candidates,
                counts=counts,
                tree=self.tree,
                code=self.code,
                cliques=tuple(cliques),
                pairings=tuple(pairings),
                linear=linear,
                islands=tuple((mask, price) for mask, price in broken if mask & everybody and price),
                stakes=tuple((masks, counts_, price << demand) for masks, counts_, price in stakes),
                once=tuple(_once(self.signature, sort.values)),
                size=shape.size,
                limit=limit,
                budgets=() if counters is None else tuple(counters.left(state)),
            )
        )
        if found is None:
            return None, states
        parts = packed.parts(-(-found.cost >> packed.order))
        carried = [part for part in order if part not in OF_THE_NODE]
        at = sum(len(packed.shifts[part]) for part in carried[: carried.index(Part.WASTE)])
        yardstick = sum(count * low for count, low in zip(counts, self.signature.least, strict=False))
        parts[at] += least * total - yardstick
        parts[-1] -= top * total
        return (found.cost, tuple(parts), found.masks), states


class _Weight:
    """What a code costs: its rank and fine, in every slot that adds it up."""

    __slots__ = ("_kept", "_shifts")

    def __init__(self, shifts: Sequence[tuple[int, int]]) -> None:
        self._shifts = shifts
        self._kept: dict[int, int] = {}

    def __call__(self, code: int) -> int:
        found = self._kept.get(code)
        if found is None:
            rank, fine = (code & BAN - 1) >> 32, code & (1 << 32) - 1
            found = self._kept[code] = sum((rank << high) + (fine << low) for high, low in self._shifts)
        return found


def _once(signature: Signature, values: Sequence[Values]) -> Iterator[tuple[tuple[int, ...], int]]:
    """Per Distinct line and value the devices of which one may be taken."""
    for line, shared in zip(signature.attributes, values, strict=True):
        if line.distinct and line.mode is not Mode.OFF:
            for mask in shared:
                yield line.requests, mask


def _island_relation(mask: int, islands: Sequence[int]) -> Relation:
    """0 between devices of one island, 1 between others; nothing at all where that would be the same everywhere."""
    inside = [island & mask for island in islands if island & mask]
    if not inside or inside == [mask]:
        return Relation({})
    home = {device: island for island in inside for device in bits(island)}
    return Relation.of(mask, mask, lambda one, other: int(not home.get(one, 0) >> other & 1))


def _objective(signature: Signature, shape: Shape, free: int, taken: int, parts: Sequence[int]) -> tuple[int, ...]:
    """The packed parts with those of the node put in their places."""
    whole = list(parts)
    if Part.NODE_LOAD in signature.order:
        part = shape.size - free.bit_count() if signature.spread else free.bit_count()
        whole.insert(signature.place(Part.NODE_LOAD), part * LOAD_UNIT // max(1, shape.size))
    blocks = 0
    for kind in dict.fromkeys(signature.kinds):
        mask = shape.kinds.get(kind, 0)
        blocks += blocks_lost((free & mask).bit_count(), (taken & mask).bit_count())
    whole.insert(signature.place(Part.BLOCKS), blocks)
    return tuple(whole)


def _with(signature: Signature, objective: tuple[int, ...], loss: int) -> tuple[int, ...]:
    """The objective with what others lose in its place."""
    at = signature.place(Part.DEMAND)
    return (*objective[:at], loss, *objective[at + 1 :])


def _decides(stake: Stake, sort: Sort, free: int) -> bool:
    """Whether it depends on the choice how much of a stake is taken; else all that a request may have is in it, or
    nothing.
    """
    for mask in stake[0]:
        for eligible in sort.eligible:
            if eligible & free & mask and eligible & free & ~mask:
                return True
    return False


def _losses(signature: Signature, shape: Shape, sort: Sort, stakes: Sequence[Stake], free: int, taken: int) -> int:
    """What others lose of these stakes, and of places that are always assumed."""
    loss = sum(lost(stake, free, taken) for stake in stakes)
    if sort.assumed:
        for kind in dict.fromkeys(signature.kinds):
            mask = shape.kinds.get(kind, 0)
            loss += assumed((free & mask).bit_count(), (taken & mask).bit_count())
    return loss


def relaxed(signature: Signature, scopes: Mapping[int, Mode], attributes: Mapping[int, Mode]) -> Signature:
    """The signature with some Required lines (by place) read in another mode."""
    return replace(
        signature,
        scopes=tuple(replace(line, mode=scopes.get(at, line.mode)) for at, line in enumerate(signature.scopes)),
        attributes=tuple(
            replace(line, mode=attributes.get(at, line.mode)) for at, line in enumerate(signature.attributes)
        ),
    )
