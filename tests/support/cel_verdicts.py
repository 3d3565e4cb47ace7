"""What an expression says of a device, as one word, and what the judge of Kubernetes says.

`Judge` keeps one process of it and asks batch by batch. Some expressions make the judge itself fall over; of those it
says nothing. What only costs too much still has a meaning: `without_cost_limit` lets both sides tell it.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from enum import StrEnum
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from adjoin_allocator.cel import CompileError, DeviceView, EvaluationError, Selector, compile_selector


class Outcome(StrEnum):
    """How an expression can end."""

    TRUE = "true"
    FALSE = "false"
    FAILS = "fails"
    REFUSED = "refused"


class Answer(NamedTuple):
    """The outcome for every device (one REFUSED where the expression is refused), and the estimated cost."""

    outcomes: tuple[Outcome, ...]
    cost: int
    reason: str = ""


@contextmanager
def without_cost_limit() -> Iterator[None]:
    """Inside, our evaluator refuses nothing for its estimated cost."""
    compile_selector.cache_clear()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("adjoin_allocator.cel.selector.MAX_COST", 1 << 70)
        yield
    compile_selector.cache_clear()


def outcome(selector: Selector, device: DeviceView) -> Outcome:
    """What a compiled expression says of a device."""
    try:
        return Outcome.TRUE if selector.matches(device) else Outcome.FALSE
    except EvaluationError:
        return Outcome.FAILS


def answer(expression: str, devices: Sequence[DeviceView]) -> Answer:
    """What our evaluator says."""
    try:
        selector = compile_selector(expression)
    except CompileError as error:
        return Answer((Outcome.REFUSED,), 0, str(error))
    return Answer(tuple(outcome(selector, device) for device in devices), selector.max_cost)


class Judge:
    """Kubernetes' evaluator as a process."""

    def __init__(self, program: Path, devices: Sequence[dict[str, Any]]) -> None:
        self._program = program
        self._devices = list(devices)
        self._process: subprocess.Popen[str] | None = None

    def ask(self, expressions: Sequence[str]) -> Iterator[Answer | None]:
        """What Kubernetes says of each, whatever it costs; None where its evaluator fell over."""
        answers = self._batch(expressions)
        if answers is not None:
            yield from answers
            return
        for expression in expressions:
            alone = self._batch([expression])
            yield None if alone is None else alone[0]

    def close(self) -> None:
        """Ends the process."""
        if self._process is not None:
            assert self._process.stdin is not None
            assert self._process.stdout is not None
            with suppress(BrokenPipeError):
                self._process.stdin.close()
            self._process.stdout.close()
            self._process.wait()
            self._process = None

    def _batch(self, expressions: Sequence[str]) -> list[Answer] | None:
        if self._process is None:
            self._process = subprocess.Popen(
                [self._program],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                encoding="utf-8",
            )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        question = {"expressions": list(expressions), "devices": self._devices}
        try:
            self._process.stdin.write(json.dumps(question) + "\n")
            self._process.stdin.flush()
            line = self._process.stdout.readline()
        except BrokenPipeError:
            line = ""
        if not line:
            self.close()
            return None
        reply = json.loads(line)
        return [_read(result) for result in reply["results"]]


def _read(result: dict[str, Any]) -> Answer:
    if "compileError" in result:
        return Answer((Outcome.REFUSED,), 0, result["compileError"])
    verdicts = result["verdicts"] or []
    return Answer(tuple(_outcome(verdict) for verdict in verdicts), result["maxCost"])


def _outcome(verdict: dict[str, Any]) -> Outcome:
    if "error" in verdict:
        return Outcome.FAILS
    return Outcome.TRUE if verdict["match"] else Outcome.FALSE


@contextmanager
def judge(program: Path, devices: Sequence[dict[str, Any]]) -> Iterator[Judge]:
    """A judge over these devices, ended at the end."""
    process = Judge(program, devices)
    try:
        yield process
    finally:
        process.close()
