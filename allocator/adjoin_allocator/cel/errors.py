"""What can go wrong with a selector: it is refused before use, or it fails on one device.

Nothing else ever leaves the room: `compile_selector` raises `CompileError` or answers, `Selector.matches` raises
`EvaluationError` or answers.
"""

from __future__ import annotations


class CompileError(ValueError):
    """The expression is refused. The message starts with `line:column: ` where a place is known; both count from 1.

    Attributes:
        line: Line of the place, 0 where the whole expression is meant.
        column: Column of the place, 0 where the whole expression is meant.
        reason: The message without the place.
    """

    def __init__(self, reason: str, line: int = 0, column: int = 0) -> None:
        super().__init__(f"{line}:{column}: {reason}" if line else reason)
        self.reason = reason
        self.line = line
        self.column = column


class EvaluationError(Exception):
    """The expression has no value on this device; such a device does not match.

    Made with a message and, where it is the cause, the name (`domain/name`) of an attribute or capacity that is
    missing. There is no constructor, since half of all evaluations in a mixed cluster end here.
    """

    @property
    def missing(self) -> str:
        """The attribute or capacity whose absence is the cause, else empty."""
        return str(self.args[1]) if len(self.args) > 1 else ""

    def __str__(self) -> str:
        return str(self.args[0])


class Refusal(Exception):
    """Inside the room only: a refusal at an offset of the source, before the offset is turned into line and column."""

    def __init__(self, reason: str, offset: int) -> None:
        super().__init__(reason)
        self.reason = reason
        self.offset = offset
