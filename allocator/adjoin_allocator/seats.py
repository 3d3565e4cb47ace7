"""How many members of a gang one node holds, and which devices each of them gets.

In come asks (one for each way of serving a member, the best first), a placer and what others want; out come capacities
by node state and, for so many members on a node, the choice of each. Members of one node are placed one after another,
each on what the ones before it left. Where that ends short of what counting allows, all of them are searched for
together, so that one member's best choice does not cost the gang another member. Nothing is taken here.

Capacities are kept by value in `SeatMemo`, up to a bound; keeping them changes speed and nothing else.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Generic, TypeVar

from adjoin_allocator.cost import Signature, Term
from adjoin_allocator.demand import Demand
from adjoin_allocator.fit import STATE_LIMIT, Fit, Form, Misfit, Obstacle, countable, needed
from adjoin_allocator.nodes import Shape, Sort, State, Values
from adjoin_allocator.place import Ask, Placer

Room = Callable[[int], int]
"""By position of a node how many more members its host takes, whatever its devices."""

Key = tuple[State, ...]
"""A node's state for each ask: shape and free devices are the same in all."""

TOGETHER = 8
"""So many requests are searched for together at most, over all members of a node."""


MEMBERS = 4096
"""The most members of a claim, and so on a node of members that need no device."""


@dataclass(frozen=True, slots=True)
class Seat:
    """What one member gets on a node: by which ask, and its devices."""

    ask: int
    fit: Fit


@dataclass(frozen=True, slots=True)
class Filling:
    """A node filled with as many members as it holds.

    Attributes:
        seats: What each gets, none of it twice.
        states: Search states seen to know it.
        limit: A search was given up: it may hold more.
    """

    seats: tuple[Seat, ...]
    states: int
    limit: bool


class SeatMemo:
    """Fillings by form and state, up to a bound."""

    def __init__(self, bound: int = 50_000) -> None:
        self._bound = bound
        self._fillings: dict[tuple[tuple[Form, ...], Key], Filling] = {}
        self._sorts: dict[tuple[Sort, int], Sort] = {}
        self._narrowed: dict[tuple[tuple[int, ...], tuple[Values, ...]], Sort] = {}

    def filling(self, placer: Placer, forms: tuple[Form, ...], key: Key) -> Filling:
        """The fullest filling of a node in this state, whatever others want."""
        found = self._fillings.get((forms, key))
        if found is None:
            found = self._fill(placer, forms, key)
            if len(self._fillings) >= self._bound:
                self._fillings.clear()
            self._fillings[forms, key] = found
        return found

    def narrowed(self, eligible: tuple[int, ...], values: tuple[Values, ...]) -> Sort:
        """The sort with these eligible devices, always the same object while it is remembered."""
        found = self._narrowed.get((eligible, values))
        if found is None:
            if len(self._narrowed) >= self._bound:
                self._narrowed.clear()
            found = self._narrowed[eligible, values] = Sort(eligible, values)
        return found

    def _fill(self, placer: Placer, forms: tuple[Form, ...], key: Key) -> Filling:
        best: tuple[Seat, ...] = ()
        states, limit = 0, False
        for first in range(len(forms)):
            # Each way in turn comes first, since the better one may be the one of which fewer fit.
            order = (first, *(other for other in range(len(forms)) if other != first))
            seats, seen, struck = _one_by_one(placer, forms, key, order)
            states, limit = states + seen, limit or struck
            if len(seats) > len(best):
                best = seats
        for ask, (form, (shape, sort, free)) in enumerate(zip(forms, key, strict=True)):
            for number in range(_ceiling(form.signature, shape, sort, free), len(best), -1):
                if number * len(form.signature.counts) > TOGETHER:
                    continue
                joint = placer.fitter.form(together(form.signature, number))
                answer = placer.fitter.fit(joint, (shape, self._sort(sort, number), free))
                states += answer.states
                if isinstance(answer, Fit):
                    best = tuple(Seat(ask, fit) for fit in _split(answer, number))
                    break
                limit = limit or answer.obstacle is Obstacle.LIMIT
        return Filling(best, states, limit)

    def _sort(self, sort: Sort, number: int) -> Sort:
        found = self._sorts.get((sort, number))
        if found is None:
            if len(self._sorts) >= self._bound:
                self._sorts.clear()
            found = self._sorts[sort, number] = Sort(sort.eligible * number, sort.values * number)
        return found


def _one_by_one(
    placer: Placer, forms: Sequence[Form], key: Key, order: Sequence[int]
) -> tuple[tuple[Seat, ...], int, bool]:
    seats: list[Seat] = []
    states, limit = 0, False
    free = key[0][2]
    while True:
        for ask in order:
            shape, sort, _ = key[ask]
            answer = placer.fitter.fit(forms[ask], (shape, sort, free))
            states += answer.states
            if isinstance(answer, Fit):
                if not answer.taken:
                    return (Seat(ask, answer),) * MEMBERS, states, limit
                seats.append(Seat(ask, answer))
                free &= ~answer.taken
                break
            limit = limit or answer.obstacle is Obstacle.LIMIT
        else:
            return tuple(seats), states, limit


def _ceiling(signature: Signature, shape: Shape, sort: Sort, state: int) -> int:
    """How many members a node holds at most, by counting."""
    if not all(signature.counts) or not signature.counts:
        return 1
    free = shape.usable(state)
    candidates = [mask & free for mask in sort.eligible]
    most = min(shape.most(state, mask) // count for mask, count in zip(candidates, signature.counts, strict=True))
    while most and not countable(candidates, [count * most for count in signature.counts]):
        most -= 1
    return most


def together(signature: Signature, number: int) -> Signature:
    """The signature of so many members as if they were one: each keeps its own lines, distances are added up."""
    size = len(signature.counts)

    def moved(requests: Sequence[int], member: int) -> tuple[int, ...]:
        return tuple(request + member * size for request in requests)

    members = range(number)
    return Signature(
        kinds=signature.kinds * number,
        counts=signature.counts * number,
        scopes=tuple(replace(line, requests=moved(line.requests, at)) for at in members for line in signature.scopes),
        attributes=tuple(
            replace(line, requests=moved(line.requests, at)) for at in members for line in signature.attributes
        ),
        slots=tuple(
            tuple(Term(moved(term.left, at), moved(term.right, at)) for at in members for term in terms)
            for terms in signature.slots
        ),
        order=signature.order,
        spread=signature.spread,
        least=signature.least * number,
    )


def _split(fit: Fit, number: int) -> list[Fit]:
    """The choices of the members one by one; the objective of all of them stands with the first."""
    size = len(fit.masks) // number
    found = []
    for member in range(number):
        masks = fit.masks[member * size : (member + 1) * size]
        taken = 0
        for mask in masks:
            taken |= mask
        objective = fit.objective if not member else tuple(0 for _ in fit.objective)
        found.append(Fit(objective, masks, taken, 0))
    return found


K = TypeVar("K", bound=Hashable)
"""What a node is to a gang: nodes of equal keys hold the same members."""


@dataclass(slots=True, eq=False)
class Seats(ABC, Generic[K]):
    """The nodes of one pool for one gang, as the ledger stands.

    Attributes:
        asks: The ways of serving a member, the best first.
        demand: What others want.
        room: What hosts take; None: any number.
        spare: What if: by position devices that count as free too.
        opened: What if: closed nodes that count as open.
        states: Search states seen.
        limit: A search was given up on the way.
    """

    placer: Placer
    memo: SeatMemo
    asks: tuple[Ask, ...]
    demand: Demand = ()
    room: Room | None = None
    spare: Mapping[int, int] = field(default_factory=dict)
    opened: frozenset[int] = frozenset()
    states: int = 0
    limit: bool = False
    _seen: set[K] = field(default_factory=set)
    _chosen: dict[tuple[K, int], tuple[Seat, ...]] = field(default_factory=dict)

    @property
    def forms(self) -> tuple[Form, ...]:
        """What decides choices, by ask."""
        return tuple(ask.form for ask in self.asks)

    @abstractmethod
    def groups(self) -> Mapping[K, Sequence[int]]:
        """The open nodes by key, positions ascending."""

    @abstractmethod
    def filling(self, key: K) -> Filling:
        """The fullest filling of such a node. Each key's work counts once."""

    @abstractmethod
    def load(self, key: K) -> float:
        """Which part of such a node is not free."""

    @abstractmethod
    def after(self, key: K, seat: Seat) -> K:
        """Such a node when a member has that seat."""

    @abstractmethod
    def could(self, key: K, at: int) -> tuple[int, ...]:
        """By request the devices that a member served by the ask at `at` could have."""

    @abstractmethod
    def supply(self, key: K, at: int) -> tuple[int, ...]:
        """By request how many devices, or parts of some, such a node could give."""

    @abstractmethod
    def needed(self, key: K, at: int) -> tuple[int, ...]:
        """By request how many devices it takes."""

    @abstractmethod
    def ways(self, key: K, at: int, masks: tuple[int, ...]) -> Iterator[Seat]:
        """What a member could get, whatever others want, when each request may only have these devices."""

    @abstractmethod
    def _fits(self, key: K, at: int) -> Sequence[Fit]:
        """Choices to try, the best beside what others want first; none when there is none."""

    def capacity(self, key: K) -> int:
        """How many members such a node holds."""
        return len(self.filling(key).seats)

    def choose(self, key: K, number: int) -> tuple[Seat, ...]:
        """What so many members get on such a node, which holds as many: each the best that leaves places for the rest,
        beside what others want.
        """
        found = self._chosen.get((key, number))
        if found is None:
            found = self._chosen[key, number] = self._choose(key, number)
        return found

    def bound(self, key: K, number: int) -> tuple[tuple[int, ...], bool]:
        """An objective that no choice of so many members betters, and whether it is that of `choose`."""
        return total(self.choose(key, number)), True

    def _choose(self, key: K, number: int) -> tuple[Seat, ...]:
        seats: list[Seat] = []
        here = key
        for left in range(number - 1, -1, -1):
            seat = self._next(here, left)
            if seat is None:
                return self.filling(key).seats[:number]
            seats.append(seat)
            here = self.after(here, seat)
        return tuple(seats)

    def _next(self, here: K, left: int) -> Seat | None:
        """The best choice after which `left` more members fit, if one is found."""
        for at in range(len(self.asks)):
            for fit in self._fits(here, at):
                seat = Seat(at, fit)
                if not left or self.capacity(self.after(here, seat)) >= left:
                    return seat
        return None

    def _look(self, key: K, found: Filling) -> Filling:
        """Counts the work of a filling, once a key."""
        if key not in self._seen:
            self._seen.add(key)
            self.states += found.states
            self.limit = self.limit or found.limit or self.states > STATE_LIMIT
        return found


class WholeSeats(Seats[Key]):
    """Where members get whole devices alone: a node is its state for each ask."""

    __slots__ = ()

    def groups(self) -> Mapping[Key, Sequence[int]]:
        """The open nodes by state, positions ascending."""
        ledger = self.placer.ledger.pools[self.asks[0].pool]
        sorts = [self.placer.nodes.sorts(ledger.index, replace(ask.question, demand=self.demand)) for ask in self.asks]
        odd = self.spare.keys() | self.opened
        found: dict[Key, list[int]] = {}
        if len(sorts) == 1:
            states = ledger.buckets(sorts[0]).states
            if not odd:
                return {(state,): positions for state, positions in states.items()}
            for state, positions in states.items():
                found[state,] = [position for position in positions if position not in odd]
        for position in sorted(odd) if len(sorts) == 1 else range(len(ledger.index.views)):
            if position not in ledger.index.closed or position in self.opened:
                shape = ledger.index.views[position].shape
                free = ledger.open[position] | self.spare.get(position, 0)
                found.setdefault(tuple((shape, each[position], free) for each in sorts), []).append(position)
        return {key: sorted(positions) for key, positions in found.items() if positions}

    def filling(self, key: Key) -> Filling:
        """The fullest filling of a node in this state."""
        bare = tuple((shape, sort.bare or sort, free) for shape, sort, free in key)
        return self._look(bare, self.memo.filling(self.placer, self.forms, bare))

    def load(self, key: Key) -> float:
        """Which part of the node is not free."""
        shape, _, free = key[0]
        return 1 - shape.usable(free).bit_count() / shape.size

    def after(self, key: Key, seat: Seat) -> Key:
        """The node without the devices of that seat."""
        return tuple((shape, sort, free & ~seat.fit.taken) for shape, sort, free in key)

    def could(self, key: Key, at: int) -> tuple[int, ...]:
        """By request the free devices that will do."""
        shape, sort, free = key[at]
        return tuple(mask & shape.usable(free) for mask in sort.eligible)

    def supply(self, key: Key, at: int) -> tuple[int, ...]:
        """By request how many devices the node could give."""
        return tuple(mask.bit_count() for mask in self.could(key, at))

    def needed(self, key: Key, at: int) -> tuple[int, ...]:
        """By request how many devices it takes."""
        return needed(self.asks[at].signature, key[at][1].eligible)

    def ways(self, key: Key, at: int, masks: tuple[int, ...]) -> Iterator[Seat]:
        """The best choice among these devices."""
        shape, sort, free = key[at]
        bare = sort.bare or sort
        # What takes all that match, takes all or nothing.
        counts = self.asks[at].signature.counts
        eligible = tuple(
            mask if count or mask == whole else 0
            for mask, count, whole in zip(masks, counts, bare.eligible, strict=True)
        )
        answer = self.placer.fitter.fit(self.asks[at].form, (shape, self.memo.narrowed(eligible, bare.values), free))
        if isinstance(answer, Fit):
            yield Seat(at, answer)

    def _fits(self, key: Key, at: int) -> Sequence[Fit]:
        """The best choice beside what others want, then that without them."""
        (shape, sort, free), form = key[at], self.asks[at].form
        fitter = self.placer.fitter
        bare = fitter.fit(form, (shape, sort.bare or sort, free))
        if isinstance(bare, Misfit) or not self.demand:
            return () if isinstance(bare, Misfit) else (bare,)
        weighed = fitter.bound(form, key[at])
        if isinstance(weighed, Misfit):
            return (bare,)
        exact = weighed if weighed.exact else fitter.weigh(form, key[at], weighed)
        return (exact,) if exact.masks == bare.masks else (exact, bare)

    def bound(self, key: Key, number: int) -> tuple[tuple[int, ...], bool]:
        """An objective that no choice of so many members betters, and whether it is that of `choose`."""
        if (key, number) in self._chosen or number > 1 or len(self.asks) > 1:
            return total(self.choose(key, number)), True
        answer = self.placer.fitter.bound(self.asks[0].form, key[0]) if self.demand else None
        if answer is None or isinstance(answer, Misfit) or answer.exact:
            return total(self.choose(key, number)), True
        return (0, *answer.objective), False


def total(seats: Sequence[Seat]) -> tuple[int, ...]:
    """What members on one node cost together: how far down the list of ways they had to go, then the objectives."""
    objective = [sum(parts) for parts in zip(*(seat.fit.objective for seat in seats), strict=False)]
    return (sum(seat.ask for seat in seats), *objective)
