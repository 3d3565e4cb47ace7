"""What can go wrong with a selector: it is refused before use, or it fails on one device.

Nothing else ever leaves the room: `compile_selector` raises `CompileError` or answers, `Selector.matches` raises `EvaluationError` or answers.
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

    Attributes:
        missing: The attribute or capacity (`domain/name`) whose absence is the cause, else empty.
    """

    def __init__(self, message: str, missing: str = "") -> None:
        super().__init__(message)
        self.missing = missing


class Refusal(Exception):
    """Inside the room only: a refusal at an offset of the source, before the offset is turned into line and column."""

    def __init__(self, reason: str, offset: int) -> None:
        super().__init__(reason)
        self.reason = reason
        self.offset = offset
