"""One replica over all nodes of its pool: the node with the best objective, and the best choice in it.

In come a ledger and an `Ask` (a claim's requests and lines, compiled), out comes a `Spot` or the obstacle that no
node was free of. Nothing is taken here. The cost of a decision follows the number of distinct node states, not of
nodes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from adjoin_allocator.alternatives import WAYS, number
from adjoin_allocator.cost import Signature, signature
from adjoin_allocator.demand import Demand
from adjoin_allocator.fit import STATE_LIMIT, Fit, Fitter, Form, Obstacle
from adjoin_allocator.ledger import Ledger
from adjoin_allocator.model import Affinity, HostAsk, Pool, Request
from adjoin_allocator.nodes import Nodes, Question, Sort, State
from adjoin_allocator.terms import Policy, Profile

NOTHING = HostAsk()
"""No host resources at all."""


@dataclass(frozen=True, slots=True, eq=False)
class Ask:
    """What one replica needs.

    Attributes:
        form: All that decides a choice but the selectors.
        question: What decides which devices are eligible.
    """

    pool: str
    requests: tuple[Request, ...]
    affinity: tuple[Affinity, ...]
    form: Form
    question: Question
    profile: Profile = Profile.BALANCED
    host: HostAsk = NOTHING

    @property
    def signature(self) -> Signature:
        """The form's signature."""
        return self.form.signature


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

    def spend(self, state: State, states: int) -> int:
        """Counts the states of one search; all that were seen so far."""
        if self.known is None or state not in self.known:
            self.states += states
            if self.known is not None:
                self.known.add(state)
        return self.states

    def over(self) -> Obstacle:
        """The limit is reached; where the search stood then depends on the order of the nodes, so it is not told."""
        self.states = STATE_LIMIT + 1
        return Obstacle.LIMIT


class Placer:
    """Looks for places in a ledger with what is remembered of nodes and answers."""

    def __init__(self, nodes: Nodes, fitter: Fitter, ledger: Ledger) -> None:
        self.nodes = nodes
        self.fitter = fitter
        self.ledger = ledger

    def ask(
        self,
        pool: Pool,
        requests: tuple[Request, ...],
        affinity: tuple[Affinity, ...],
        profile: Profile = Profile.BALANCED,
        host: HostAsk = NOTHING,
    ) -> Ask:
        """Compiles what is asked, one way of serving each request. It must be valid (`flaw` says None)."""
        types = {name.name: name.type for name in pool.devices}
        wanted = signature(
            requests,
            [types[request.kind] for request in requests],
            affinity,
            profile,
            pool.strategy,
            self._least(pool, requests),
        )
        return Ask(
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
        )

    def _least(self, pool: Pool, requests: Sequence[Request]) -> tuple[int, ...]:
        """`Signature.least`; nothing where no request is for all that match."""
        if not any(request.all_devices for request in requests):
            return ()
        index = self.ledger.pools[pool.name].index
        return tuple(
            self.nodes.slowest(index, request.kind, request.selectors) if request.all_devices else 0
            for request in requests
        )

    def sorts(self, ask: Ask) -> Sequence[Sort]:
        """The sort of each node of the ask's pool."""
        return self.nodes.sorts(self.ledger.pools[ask.pool].index, ask.question)

    def fits(self, ask: Ask) -> bool:
        """Whether one replica fits anywhere."""
        states = self.ledger.pools[ask.pool].buckets(self.sorts(ask)).states
        return any(self.fitter.fits(ask.form, state) for state in states)

    def best(self, ask: Ask, effort: Effort, demand: Demand = ()) -> Spot | Obstacle:
        """The best place for one replica beside what others want, or what kept it from every node: the limit if it was
        reached, Required lines if a node has enough devices, else their number.
        """
        ledger, fitter, form = self.ledger.pools[ask.pool], self.fitter, ask.form
        question = replace(ask.question, demand=demand) if demand else ask.question
        answers = fitter.weighed(form) if demand else fitter.answers(form)
        answer_to = fitter.bound if demand else fitter.fit
        best: _Found | None = None
        bounds: list[tuple[_Found, State]] = []
        obstacle = Obstacle.COUNT
        for state, positions in ledger.buckets(self.nodes.sorts(ledger.index, question)).states.items():
            answer = answers.get(state) or answer_to(form, state)
            if effort.spend(state, answer.states) > STATE_LIMIT:
                return effort.over()
            if isinstance(answer, Fit):
                if best is None or answer.objective <= best[0]:
                    shape, _, free = state
                    found = (answer.objective, 1 - free.bit_count() / shape.size, positions[0], answer)
                    if best is None or found[:3] < best[:3]:
                        if answer.exact:
                            best = found
                        else:
                            bounds.append((found, state))
            elif answer.obstacle is Obstacle.LIMIT:
                return effort.over()
            elif answer.obstacle is Obstacle.LINES:
                obstacle = Obstacle.LINES
        # What is only bounded is looked at more closely while it could be better, the most promising first.
        for (objective, load, position, bound), state in sorted(bounds, key=lambda each: each[0][:3]):
            if best is not None and (objective, load, position) > best[:3]:
                break
            fit = fitter.weigh(form, state, bound)
            if best is None or (fit.objective, load, position) < best[:3]:
                best = (fit.objective, load, position, fit)
        return obstacle if best is None else Spot(best[2], best[3])


_Found = tuple[tuple[int, ...], float, int, Fit]
"""Objective, load and position of a choice."""


def flaw(pool: Pool, requests: Sequence[Request], affinity: Iterable[Affinity], host: HostAsk = NOTHING) -> str | None:
    """Why a claim cannot be read against its pool, or None when it can. One that asks for host resources alone needs no
    requests.
    """
    known = [name.name for name in pool.devices]
    if not requests and host == NOTHING:
        return "it has no requests"
    names = [request.name for request in requests]
    if len(set(names)) < len(names):
        return "two requests have one name"
    for request in requests:
        if request.kind not in known:
            listed = ", ".join(known) or "none"
            asked = f"request {request.name} asks for device {request.kind}"
            return f"{asked}, which pool {pool.name} does not have (it has: {listed})"
        called = [each.name for each in request.first_of]
        if len(set(called)) < len(called):
            return f"request {request.name} has two alternatives of one name"
        amounts = [(f"{request.name}/{each.name}", each.all_devices, each.count) for each in request.first_of]
        for name, all_devices, count in amounts or [(request.name, request.all_devices, request.count)]:
            if not all_devices and count < 1:
                return f"request {name} asks for {count} devices"
    if number(requests) > WAYS:
        return f"its alternatives make {number(requests)} ways of serving it, and at most {WAYS} are tried"
    for line in affinity:
        strangers = [name for name in line.requests if name not in names]
        if strangers or not line.requests:
            return f"affinity names request {', '.join(strangers) or '(none)'}, which is not in the claim"
        if len(set(line.requests)) < len(line.requests):
            return "affinity names a request twice in one line"
        if (line.scope is None) == (not line.attribute):
            return "affinity has a line that is not either a scope or an attribute"
        fitting = (Policy.MATCH, Policy.DISTINCT) if line.scope is None else (Policy.REQUIRED, Policy.PREFERRED)
        if line.policy not in fitting:
            asked = line.attribute if line.scope is None else line.scope
            return f"affinity on {asked} has policy {line.policy}, which must be {' or '.join(fitting)}"
    return None
