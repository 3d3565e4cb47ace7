"""What one evaluation may cost before it is stopped.

Kubernetes stops an evaluation at 1,000,000 units. Nearly everything is bounded by the estimate at compile time
already; the meter counts what the estimate does not bound: turns of loops and the size of what is built. A tenth of a
unit a character, one a list element or turn.
"""

from __future__ import annotations

from typing import Final

LIMIT: Final = 1_000_000


class StoppedError(Exception):
    """The evaluation is stopped as a whole. Not an `EvaluationError`: `||`, `&&` and loops pass over those, and must
    not over this."""


class Meter:
    """The units that one evaluation has left."""

    __slots__ = ("left",)

    def __init__(self, limit: int = LIMIT) -> None:
        self.left = limit

    def spend(self, units: int) -> None:
        """Takes units. Raises `StoppedError` when there are none left."""
        self.left -= units
        if self.left < 0:
            raise StoppedError("the evaluation exceeds its cost limit")

    def spend_on_text(self, length: int) -> None:
        """For a text or bytes value of that length that is about to be built."""
        if length > 9:
            self.spend(length // 10)

    def spend_on_list(self, length: int) -> None:
        """For a list of that length that is about to be built or gone through."""
        self.spend(length)
