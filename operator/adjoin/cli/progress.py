"""What a long command is doing, on the standard error of a terminal and nowhere else.

In come words and counts; nothing comes out that could stand in an answer, and without a terminal nothing at all.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol


class Tell(Protocol):
    """Says what is being done, and how much of it (of `total`, where that is known)."""

    def __call__(self, words: str, done: int | None = None, total: int | None = None) -> None: ...


def _silent(words: str, done: int | None = None, total: int | None = None) -> None:
    """Nobody watches."""


@contextmanager
def progress() -> Iterator[Tell]:
    """A line that goes with the block."""
    if not sys.stderr.isatty():
        yield _silent
        return
    from rich.console import Console
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as shown:
        task = shown.add_task("…", total=None)

        def tell(words: str, done: int | None = None, total: int | None = None) -> None:
            counted = "" if done is None else f" {done:,}" + ("" if total is None else f" of {total:,}")
            shown.update(task, description=f"{words}{counted}")

        yield tell
