"""One replica over all nodes of its pool: the node with the best objective, and the best choice in it.

In come a ledger and an `Ask` (a claim's requests and lines, compiled), out comes a `Spot` or the obstacle that no
node was free of. Nothing is taken here. The cost of a decision follows the number of distinct node states, not of
nodes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache

import numpy as np

from adjoin_allocator.alternatives import WAYS, count_ways, ways
from adjoin_allocator.cost import Signature, signature
from adjoin_allocator.demand import Demand
from adjoin_allocator.fit import STATE_LIMIT, Fit, Fitter, Form, Obstacle
from adjoin_allocator.hosts import NOTHING, Rooms
from adjoin_allocator.ledger import Ledger
from adjoin_allocator.model import Affinity, Claim, DeviceName, HostAsk, PlacedShare, Pool, Request
from adjoin_allocator.nodes import Nodes, Question, Sort, State
from adjoin_allocator.scores import Scores
from adjoin_allocator.states import States
from adjoin_allocator.terms import Policy, Profile


@dataclass(frozen=True, slots=True, eq=False)
class Ask:
    """What one replica needs.

    Attributes:
        form: All that decides a choice but the selectors.
        question: What decides which devices are eligible.
        host: What the replica's pod needs beside its devices.
        portions: By device name the least that a device costs, where that is less than a whole one.
        parts: By request what is held of a device when a part of it is given; None for whole ones.
        divides: Whether there are parts.
    """

    pool: str
    requests: tuple[Request, ...]
    affinity: tuple[Affinity, ...]
    form: Form
    question: Question
    profile: Profile = Profile.BALANCED
    host: HostAsk = NOTHING
    portions: tuple[tuple[str, int], ...] = ()
    parts: tuple[PlacedShare | None, ...] = field(init=False)
    divides: bool = field(init=False)

    def __post_init__(self) -> None:
        parts = tuple([None if request.share is None else request.share.placed for request in self.requests])
        object.__setattr__(self, "parts", parts)
        object.__setattr__(self, "divides", any(parts))

    @property
    def signature(self) -> Signature:
        """The form's signature."""
        return self.form.signature


@dataclass(frozen=True, slots=True, eq=False)
class Reading:
    """A claim as its pool reads it.

    Attributes:
        flaws: Why it cannot be read; without any it has ways and asks.
        ways: Ways of serving a replica, the most wanted first.
        asks: What each way needs.
        divides: Some way takes parts of devices.
    """

    pool: Pool
    flaws: tuple[str, ...]
    ways: tuple[tuple[Request, ...], ...] = ()
    asks: tuple[Ask, ...] = ()
    divides: bool = False


@dataclass(frozen=True, slots=True)
class Spot:
    """Where a replica fits best."""

    position: int
    fit: Fit


@dataclass(slots=True, eq=False)
class Effort:
    """States seen for one claim. A state of nodes counts once, however many replicas look at it and whether or not the
    answer was remembered, so that a memo changes no answer.
    """

    states: int = 0
    known: set[State] | None = None
    _last: tuple[Scores, tuple[int, ...]] | None = None

    def spend(self, state: State, states: int) -> int:
        """Counts the states of one search; all that were seen so far."""
        if self.known is None or state not in self.known:
            self.states += states
            if self.known is not None:
                self.known.add(state)
        return self.states

    def look(self, scores: Scores) -> int:
        """Counts the states of all answers that are compared; all that were seen so far."""
        if self.known is None:
            self.states += scores.total
        elif self._last is None or self._last[0] is not scores or self._last[1] is not scores.alive:
            self._last = (scores, scores.alive)
            for row in scores.alive:
                self.spend(scores.rows[row].state, scores.cost(row))
        return self.states

    def over(self) -> Obstacle:
        """The limit is reached; where the search stood then depends on the order of the nodes, so it is not told."""
        self.states = STATE_LIMIT + 1
        return Obstacle.LIMIT


SCORES = 256
"""How many kinds of asks, each beside one demand, have their answers kept in order."""

ASKS = 4096
"""How many compiled asks are remembered."""


class Placer:
    """Looks for places in a ledger with what is remembered of nodes and answers."""

    def __init__(self, nodes: Nodes, fitter: Fitter, ledger: Ledger) -> None:
        self.nodes = nodes
        self.fitter = fitter
        self.ledger = ledger
        self._asks: dict[tuple[object, ...], Ask] = {}
        self._readings: dict[tuple[object, ...], Reading] = {}
        self._scores: dict[tuple[Ask, int], tuple[Demand, Scores]] = {}
        self._fits: dict[Ask, tuple[States, dict[int, bool]]] = {}

    def read(self, pool: Pool, claim: Claim) -> Reading:
        """Reads a claim of a pool."""
        index = self.ledger.pools[pool.name].index
        key = (pool.name, claim.requests, claim.affinity, claim.host, claim.profile, index.counted, index.portions)
        known = self._readings.get(key)
        if known is not None and known.pool is pool:
            return known
        wrong = flaws(pool, claim.requests, claim.affinity, claim.host)
        if wrong:
            return Reading(pool, wrong)
        choices = ways(claim.requests)
        asks = tuple([self.ask(pool, way, claim.affinity, claim.host, claim.profile) for way in choices])
        requests = [request for way in choices for request in way]
        reading = Reading(pool, (), choices, asks, any(request.share is not None for request in requests))
        # What `all` is at the least follows from the devices there are.
        if not any(request.all_devices for request in requests):
            self._readings[key] = reading
        return reading

    def ask(
        self,
        pool: Pool,
        requests: tuple[Request, ...],
        affinity: tuple[Affinity, ...],
        host: HostAsk = NOTHING,
        profile: Profile = Profile.BALANCED,
    ) -> Ask:
        """Compiles what is asked, one way of serving each request. It must be valid (`flaws` finds none)."""
        least = self._least(pool, requests)
        index = self.ledger.pools[pool.name].index
        counters = index.counted, index.portions
        key = (pool.name, pool.devices, pool.strategy, requests, affinity, profile, least, host, counters)
        known = self._asks.get(key)
        if known is not None:
            return known
        types = {name.name: name.type for name in pool.devices}
        kinds = [types[request.kind] for request in requests]
        wanted = signature(requests, kinds, affinity, profile, pool.strategy, least, index.counted)
        if len(self._asks) >= ASKS:
            self._asks.clear()
            self._readings.clear()
        ask = self._asks[key] = Ask(
            pool=pool.name,
            requests=requests,
            affinity=affinity,
            form=self.fitter.form(wanted),
            question=Question(
                requests=tuple((request.kind, request.selectors) for request in requests),
                attributes=tuple(line.attribute for line in wanted.attributes),
            ),
            profile=profile,
            host=host,
            portions=index.portions,
        )
        return ask

    def _least(self, pool: Pool, requests: Sequence[Request]) -> tuple[int, ...]:
        """`Signature.least`; nothing where no request is for all that match."""
        if not any(request.all_devices for request in requests):
            return ()
        index = self.ledger.pools[pool.name].index
        return tuple(
            self.nodes.slowest(index, request.kind, request.selectors) if request.all_devices else 0
            for request in requests
        )

    def sort(self, ask: Ask, position: int) -> Sort:
        """The sort of a node of the ask's pool."""
        classes = self.states(ask).classes
        return classes.sorts(ask.question)[classes.of[position]]

    def states(self, ask: Ask) -> States:
        """The nodes of the ask's pool in states, each equal for the ask."""
        return self.ledger.pools[ask.pool].states(ask.question)

    def open_states(self, ask: Ask) -> list[State]:
        """The states that have open nodes, as the ask sees them, in canonical form."""
        states = self.states(ask)
        sorts, examples = states.classes.sorts(ask.question), states.classes.examples
        kinds = [states.kinds[number] for number in states.open]
        return [(examples[kind.number].shape, sorts[kind.number], kind.masks.free) for kind in kinds]

    def rooms(self, ask: Ask) -> Rooms:
        """What the nodes of the ask's pool have left beside devices."""
        return self.ledger.hosts.rooms(self.ledger.pools[ask.pool].index)

    def host_room(self, ask: Ask, position: int) -> int:
        """How many replicas of the ask more have room on a node beside their devices; `UNLIMITED` for any number."""
        return self.rooms(ask).count(position, ask.host)

    def host_rooms(self, ask: Ask) -> Callable[[int], int] | None:
        """By position how many replicas of the ask more have room beside their devices; None for any number."""
        if ask.host == NOTHING:
            return None
        rooms = self.rooms(ask)
        return lambda position: rooms.count(position, ask.host)

    def fits(self, ask: Ask) -> bool:
        """Whether one replica fits anywhere."""
        states = self.states(ask)
        known = self._fits.get(ask)
        if known is None or known[0] is not states:
            if len(self._fits) >= ASKS:
                self._fits.clear()
            known = self._fits[ask] = (states, {})
        answers = known[1]
        sorts = states.classes.sorts(ask.question)
        fitting = []
        for number in states.open:
            found = answers.get(number)
            if found is None:
                kind = states.kinds[number]
                state = (states.classes.examples[kind.number].shape, sorts[kind.number], kind.masks.free)
                found = answers[number] = self.fitter.fits(ask.form, state)
            if found and ask.host == NOTHING:
                return True
            if found:
                fitting.append(number)
        if not fitting:
            return False
        room = self.rooms(ask).suffices(ask.host)
        return any(bool(room[np.frombuffer(states.members[number], dtype=np.int32)].any()) for number in fitting)

    def best(self, ask: Ask, effort: Effort, demand: Demand = ()) -> Spot | Obstacle:
        """The best place for one replica beside what others want, or what kept it from every node: the limit if it was
        reached, room beside devices if a node had the devices, Required lines if a node has enough devices, else their
        number.
        """
        ledger, fitter, form = self.ledger.pools[ask.pool], self.fitter, ask.form
        scores = self._known_scores(ask, demand)
        if not scores.fill() or effort.look(scores) > STATE_LIMIT:
            return effort.over()
        room = None if ask.host == NOTHING else self.rooms(ask).suffices(ask.host)
        while True:
            found = scores.best(room)
            if found is None:
                return scores.obstacle if room is None or scores.best() is None else Obstacle.HOST
            row, position = found
            bound = scores.rows[row].answer
            assert isinstance(bound, Fit)
            if bound.exact:
                break
            # What is only bounded is looked at more closely when it would be the best.
            scores.improve(row, fitter.weigh(form, scores.rows[row].state, bound))
        # Which devices: decided on this very node, where stable order is what it is.
        shape, sort, _ = scores.rows[row].state
        state = (shape, sort, ledger.open[position])
        fit = fitter.bound(form, state) if demand else fitter.fit(form, state)
        assert isinstance(fit, Fit)
        return Spot(position, fit if fit.exact else fitter.settle(form, state, fit, scores.rows[row].answer))

    def _known_scores(self, ask: Ask, demand: Demand) -> Scores:
        ledger, fitter, form = self.ledger.pools[ask.pool], self.fitter, ask.form
        key = (ask, id(demand))
        known = self._scores.get(key)
        if known is not None and known[0] is demand and known[1].states is ledger.current:
            return known[1]
        question = replace(ask.question, demand=demand) if demand else ask.question
        states = ledger.states(question)
        if len(self._scores) >= SCORES:
            self._scores.clear()
        answer = fitter.bound if demand else fitter.fit
        scores = Scores(states, question, lambda state: answer(form, state))
        self._scores[key] = (demand, scores)
        return scores


def flaws(
    pool: Pool, requests: Sequence[Request], affinity: Iterable[Affinity], host: HostAsk = NOTHING
) -> tuple[str, ...]:
    """Why a claim cannot be read against its pool: all that is wrong with it, in a fixed order; nothing when it can.
    One that asks for host resources alone needs no requests.
    """
    return _flaws(pool.name, pool.devices, tuple(requests), tuple(affinity), host)


@lru_cache(maxsize=ASKS)
def _flaws(
    pool: str,
    devices: tuple[DeviceName, ...],
    requests: tuple[Request, ...],
    affinity: tuple[Affinity, ...],
    host: HostAsk,
) -> tuple[str, ...]:
    known, names = [name.name for name in devices], [request.name for request in requests]
    found: list[str] = []
    if not requests and host == NOTHING:
        found.append("it has no requests")
    if host.cpu_milli < 0 or host.memory_bytes < 0:
        found.append("it needs less than nothing of the host")
    if len(set(names)) < len(names):
        found.append("two requests have one name")
    for request in requests:
        found += _request_flaws(pool, known, request)
    if count_ways(requests) > WAYS:
        found.append(f"its alternatives make {count_ways(requests)} ways of serving it, and at most {WAYS} are tried")
    for line in affinity:
        found += _line_flaws(line, names)
    # Two lines may be wrong in the same way.
    return tuple(dict.fromkeys(found))


def _request_flaws(pool: str, known: Sequence[str], request: Request) -> Iterator[str]:
    if request.kind not in known:
        listed = ", ".join(known) or "none"
        asked = f"request {request.name} asks for device {request.kind}"
        yield f"{asked}, which pool {pool} does not have (it has: {listed})"
    called = [each.name for each in request.first_of]
    if len(set(called)) < len(called):
        yield f"request {request.name} has two alternatives of one name"
    amounts = [(f"{request.name}/{each.name}", each.all_devices, each.count) for each in request.first_of]
    for name, all_devices, count in amounts or [(request.name, request.all_devices, request.count)]:
        if not all_devices and count < 1:
            yield f"request {name} asks for {count} devices"


def _line_flaws(line: Affinity, names: Sequence[str]) -> Iterator[str]:
    strangers = [name for name in line.requests if name not in names]
    if strangers or not line.requests:
        yield f"affinity names request {', '.join(strangers) or '(none)'}, which is not in the claim"
    if len(set(line.requests)) < len(line.requests):
        yield "affinity names a request twice in one line"
    if (line.scope is None) == (not line.attribute):
        yield "affinity has a line that is not either a scope or an attribute"
        return
    fitting = (Policy.MATCH, Policy.DISTINCT) if line.scope is None else (Policy.REQUIRED, Policy.PREFERRED)
    if line.policy not in fitting:
        asked = line.attribute if line.scope is None else line.scope
        yield f"affinity on {asked} has policy {line.policy}, which must be {' or '.join(fitting)}"
