"""Many replicas at once: which candidate patterns to take so that no device is taken twice, by CP-SAT.

In come columns (a kind of replica on a node with certain devices, and what that costs) and how many of each kind there
must be; out comes a choice of columns, with a proof that nothing is better where the solver found one. Nothing here
knows claims, pools or wiring.

The solver is a single worker with a fixed seed, and its work is limited by its own count of it, so the same columns
give the same answer. A limit of wall time stands above that only as a safety stop; `Budget.struck` says that it
ended a search, whose answer may then differ from one found elsewhere.

The model goes to the solver as text in its published format, and only the solver itself is loaded (a tenth of a second
where the modelling layer above it takes three, for libraries that nothing here uses); and that only when there is
something to solve.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from math import ceil, isfinite

PARAMETERS = "num_workers:1 random_seed:1 cp_model_presolve:false linearization_level:2"
"""Presolving is left out: its work is not counted, and these models (sets that must not overlap) are what the linear
relaxation is good at as they stand."""

MERGED = 1 << 44
"""Levels of an objective are minimised together while their weighted sum stays below this."""

ASIDE = 0.1
"""The part of a budget that each objective of penalties may have: it takes long to prove, and matters least."""

MODEL, VARIABLE = 5e-3, 2e-5
"""What handing over a model, and each variable of it, counts as work: it takes about so many seconds."""

SLACK = 1e-4
"""A search that used less than its work by this much was ended by something else."""


class Status(StrEnum):
    """What is known of an answer."""

    OPTIMAL = "Optimal"
    FEASIBLE = "Feasible"
    """There is one, and there may be something better."""
    INFEASIBLE = "Infeasible"
    UNKNOWN = "Unknown"


@dataclass(frozen=True, slots=True)
class Column:
    """One replica of a kind, on a node, with these devices.

    Attributes:
        costs: By level, the most important first; every column has as many.
    """

    kind: int
    node: int
    taken: int
    costs: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Penalty:
    """What it costs when any of some columns is chosen."""

    columns: tuple[int, ...]
    costs: tuple[int, ...]


Total = tuple[Sequence[tuple[int, int]], int, int]
"""A sum of columns times numbers, with its least and its greatest value."""


@dataclass(frozen=True, slots=True)
class Answer:
    """Chosen columns, none unless there is an answer.

    Attributes:
        bound: No choice has a smaller objective.
    """

    status: Status
    chosen: tuple[int, ...] = ()
    bound: int = 0


@dataclass(frozen=True, slots=True)
class Least:
    """The choice of least costs that was found.

    Attributes:
        proven: No choice has smaller costs of columns.
        bound: Costs of columns, level by level, below which no choice is; levels at the end may be missing.
    """

    chosen: tuple[int, ...]
    proven: bool
    bound: tuple[int, ...]


@dataclass(slots=True)
class Budget:
    """Solver work that is left, with the wall time that it may take at most. Both in the solver's seconds."""

    work: float
    wall: float
    struck: bool = False

    @classmethod
    def of(cls, milliseconds: int) -> Budget:
        """The budget of one batch."""
        return cls(milliseconds / 1000, 3 * milliseconds / 1000)

    @property
    def spent(self) -> bool:
        """Nothing more may be solved."""
        return self.struck or self.work <= SLACK or self.wall <= SLACK


class Program:
    """Columns of which no two chosen ones take the same device of a node."""

    def __init__(self, columns: Sequence[Column], penalties: Sequence[Penalty] = ()) -> None:
        self.columns = columns
        self.penalties = penalties
        self._kinds: dict[int, list[int]] = {}
        takers: dict[tuple[int, int], list[int]] = {}
        for at, column in enumerate(columns):
            self._kinds.setdefault(column.kind, []).append(at)
            left = column.taken
            while left:
                low = left & -left
                takers.setdefault((column.node, low), []).append(at)
                left ^= low
        lines = ["variables{domain:[0,1]}"] * (len(columns) + len(penalties))
        lines += (f"constraints{{at_most_one{{literals:{list(these)}}}}}" for these in takers.values() if these[1:])
        for number, penalty in enumerate(penalties, start=len(columns)):
            lines += (f"constraints{{bool_or{{literals:[{-at - 1},{number}]}}}}" for at in penalty.columns)
        self._text = "\n".join(lines)

    def counts(self, bounds: Sequence[tuple[int, int]]) -> list[Total]:
        """At least and at most so many of each kind."""
        return [([(at, 1) for at in self._kinds.get(kind, ())], *limits) for kind, limits in enumerate(bounds)]

    def solve(
        self,
        totals: Sequence[Total],
        objective: Sequence[tuple[int, int]],
        hint: Iterable[int],
        budget: Budget,
        work: float,
    ) -> Answer:
        """The least objective (a sum of variables times numbers; any choice when it is empty), from a hint, for at
        most so much work of the budget.
        """
        from ortools.sat.python import cp_model_helper as cp_sat  # see the module's docstring

        lines = [self._text]
        for terms, least, most in totals:
            if terms:
                lines.append(f"constraints{{linear{{{_terms(terms)} domain:[{least},{most}]}}}}")
            elif least > 0:
                return Answer(Status.INFEASIBLE)
        if objective:
            lines.append(f"objective{{{_terms(objective)}}}")
        chosen = set(hint)
        size = len(self.columns)
        values = [int(at in chosen) for at in range(size)]
        values += [int(not chosen.isdisjoint(penalty.columns)) for penalty in self.penalties]
        if chosen:
            lines.append(f"solution_hint{{vars:{list(range(len(values)))} values:{values}}}")
        model, parameters, solver = cp_sat.CpModelProto(), cp_sat.SatParameters(), cp_sat.SolveWrapper()
        assert model.parse_text_format("\n".join(lines)), "the solver cannot read the model"
        work, wall = min(work, budget.work), budget.wall
        limits = f"max_deterministic_time:{work!r} max_time_in_seconds:{wall!r}"
        assert parameters.parse_text_format(f"{PARAMETERS} {limits}"), "the solver does not know a parameter"
        solver.set_parameters(parameters)
        response = solver.solve(model)  # type: ignore[no-untyped-call]
        budget.work -= response.deterministic_time + MODEL + VARIABLE * len(values)
        budget.wall -= response.wall_time
        status = Status[response.status.name]
        if status in (Status.FEASIBLE, Status.UNKNOWN):
            budget.struck = budget.struck or response.deterministic_time < work - SLACK
        bound = max(_whole(response.best_objective_bound), sum(min(0, cost) for _, cost in objective))
        if status in (Status.INFEASIBLE, Status.UNKNOWN):
            return Answer(status, bound=bound)
        solution = response.solution
        return Answer(status, tuple(at for at in range(size) if solution[at]), bound)

    def least(self, totals: Sequence[Total], most: int, hint: Sequence[int], budget: Budget) -> Least:
        """The choice of at most `most` columns with the least costs, level by level, those of columns before those of
        penalties, which may cost a small part of the work. `hint` is a choice that meets the totals.
        """
        rules, best, bound = list(totals), tuple(hint), []
        aside = budget.work * ASIDE
        proven = False
        own = [*_stages([column.costs for column in self.columns], most, 0)]
        later = [*_stages([penalty.costs for penalty in self.penalties], len(self.penalties), len(self.columns))]
        for number, (terms, radices) in enumerate(own + later):
            answer = Answer(Status.OPTIMAL)
            if terms:
                if budget.spent:
                    break
                answer = self.solve(rules, terms, best, budget, budget.work if number < len(own) else aside)
                if answer.chosen and self._value(terms, answer.chosen) <= self._value(terms, best):
                    best = answer.chosen
                rules.append((terms, 0, self._value(terms, best)))
            if number < len(own):
                bound += _levels(answer.bound, radices)
            if answer.status is not Status.OPTIMAL:
                break
            proven = proven or number == len(own) - 1
        return Least(best, proven or not own, tuple(bound))

    def _value(self, terms: Sequence[tuple[int, int]], chosen: Iterable[int]) -> int:
        """What a choice costs; a penalty is due when it must be."""
        variables = set(chosen)
        variables |= {
            number
            for number, penalty in enumerate(self.penalties, start=len(self.columns))
            if not variables.isdisjoint(penalty.columns)
        }
        return sum(cost for at, cost in terms if at in variables)


def _stages(
    costs: Sequence[tuple[int, ...]], most: int, first: int
) -> Iterator[tuple[list[tuple[int, int]], list[int]]]:
    """Objectives one after the other for costs by level of variables from `first` on, of which at most `most` are
    chosen: levels merged as far as numbers allow, with how many values each level has.
    """
    levels = [max(level) * most + 1 for level in zip(*costs, strict=True)]
    at = 0
    while at < len(levels):
        end, size = at + 1, levels[at]
        while end < len(levels) and size * levels[end] < MERGED:
            size *= levels[end]
            end += 1
        terms = []
        for number, cost in enumerate(costs, start=first):
            weighted = 0
            for level in range(at, end):
                weighted = weighted * levels[level] + cost[level]
            if weighted:
                terms.append((number, weighted))
        yield terms, levels[at:end]
        at = end


def _levels(value: int, radices: Sequence[int]) -> list[int]:
    """A merged value as one value a level."""
    found = []
    for radix in reversed(radices):
        value, level = divmod(value, radix)
        found.append(level)
    return found[::-1]


def _terms(terms: Sequence[tuple[int, int]]) -> str:
    return f"vars:{[at for at, _ in terms]} coeffs:{[number for _, number in terms]}"


def _whole(bound: float) -> int:
    """The least whole number that a bound allows; a very small one when it allows any."""
    return ceil(bound - 1e-6) if isfinite(bound) else -MERGED
