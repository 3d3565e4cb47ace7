"""What is wrong with an object, as values: where, what stands there, and what would be right.

Nothing here raises but `InvalidObject`, which carries such values to callers that wanted a model and cannot have one.
"""

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

_PLAIN: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*", re.ASCII)
_VALUE_MAX: Final = 120


class ErrorKind(StrEnum):
    INVALID = "invalid"
    UNSUPPORTED = "unsupported"
    IMMUTABLE = "immutable"


@dataclass(frozen=True, slots=True)
class FieldError:
    """One thing that is wrong.

    Attributes:
        path: The field, as in `spec.requests[0].count`.
        value: What stands there; None when nothing does.
        message: What is wrong and what would be right.
        kind: Wrong by itself, not supported yet, or a change of what may not change.
    """

    path: str
    value: Any
    message: str
    kind: ErrorKind = ErrorKind.INVALID

    def __str__(self) -> str:
        if self.kind is ErrorKind.UNSUPPORTED:
            return f"{self.message} (found {shown(self.value)})"
        return f"{self.path}: {shown(self.value)}: {self.message}"


class InvalidObject(ValueError):
    """An object that is no DeviceClaim, DevicePool or DeviceShare; `errors` says why, at least one."""

    def __init__(self, errors: Sequence[FieldError]) -> None:
        self.errors = tuple(errors)
        super().__init__(joined(errors))


def joined(errors: Iterable[FieldError]) -> str:
    """All errors in one line, for admission answers and messages."""
    return "; ".join(str(error) for error in errors)


def path_of(steps: Iterable[str | int]) -> str:
    """Render steps into an object: `spec.requests[0].count`; keys that are no plain names stand in brackets."""
    text = ""
    for step in steps:
        if isinstance(step, int):
            text += f"[{step}]"
        else:
            text = below(text, step) if text else step
    return text


def below(path: str, key: str) -> str:
    """Path of what stands under a key, by the same rule."""
    return f"{path}.{key}" if _PLAIN.fullmatch(key) else f"{path}[{key}]"


def shown(value: Any) -> str:
    """A value for people: JSON where it is JSON, cut where it is long, `nothing` where there is none."""
    if value is None:
        return "nothing"
    try:
        text = json.dumps(value, ensure_ascii=False, allow_nan=True)
    except (TypeError, ValueError):
        text = str(value)
    return text if len(text) <= _VALUE_MAX else f"{text[: _VALUE_MAX - 1]}…"
