"""Dictionary → model and back.

`parse_strict` is for what people write (admission, files): an unknown key is an error that names the key that was
meant. `parse_lenient` is for what the API server holds: keys and words of a newer version are passed over. Both treat
null as absence, as the API server does. `dump` is the way back.
"""

import difflib
import re
from collections.abc import Mapping
from typing import Any, Final, TypeVar

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from adjoin.api.claim import DeviceClaim
from adjoin.api.common import ObjectMeta
from adjoin.api.errors import FieldError, InvalidObject, path_of
from adjoin.api.pool import DevicePool
from adjoin.api.scalars import PATTERN_WORDS
from adjoin.api.schema import schema_at, structural_schema, without_empty
from adjoin.api.share import DeviceShare

Object = TypeVar("Object", DeviceClaim, DevicePool, DeviceShare)

_TOP: Final = ("apiVersion", "kind", "metadata", "spec", "status")
_METADATA: Final = tuple(str(field.alias or name) for name, field in ObjectMeta.model_fields.items())
_WORDS: Final[dict[str, str]] = {
    "missing": "is required",
    "int_type": "must be a whole number",
    "int_parsing_size": "must be a whole number of at most 64 bits",
    "bool_type": "must be true or false",
    "float_type": "must be a number",
    "finite_number": "must be a finite number",
    "string_type": "must be text; put quotes around it",
    "string_unicode": "must be text in UTF-8",
    "model_type": "must be an object with fields",
    "dict_type": "must be an object with fields",
    "tuple_type": "must be a list",
    "greater_than_equal": "must be at least {ge}",
    "less_than_equal": "must be at most {le}",
    "string_too_short": "must not be empty",
    "string_too_long": "must have at most {max_length} characters",
    "too_long": "must have at most {max_length} entries",
    "too_short": "must have at least {min_length} entries",
}


def parse_strict(model: type[Object], obj: Mapping[str, Any]) -> Object:
    """Read an object that somebody wrote.

    Raises:
        InvalidObject: With every error that types, limits and key names show.
    """
    try:
        return model.model_validate(
            without_nulls(obj), extra="forbid", by_alias=True, by_name=False, context={"strict": True}
        )
    except ValidationError as error:
        raise _invalid(model, error) from None


def parse_lenient(model: type[Object], obj: Mapping[str, Any]) -> Object:
    """Read an object that the API server holds.

    Raises:
        InvalidObject: A known field holds what it cannot hold.
    """
    try:
        return model.model_validate(without_nulls(obj), extra="ignore", by_alias=True, by_name=False)
    except ValidationError as error:
        raise _invalid(model, error) from None


def dump(value: BaseModel, *, empty: bool = False) -> dict[str, Any]:
    """The value as JSON-ready dictionary. Absent and empty fields are left out, unless `empty` asks for them."""
    full = value.model_dump(mode="json", by_alias=True)
    if empty:
        return full
    kept: dict[str, Any] = without_empty(full)
    return kept


def without_nulls(value: Any) -> Any:
    """Leave out keys whose value is null, at every depth; lists keep their length."""
    if isinstance(value, Mapping):
        return {key: without_nulls(item) for key, item in value.items() if item is not None}
    if isinstance(value, list):
        return [without_nulls(item) for item in value]
    return value


def did_you_mean(word: str, known: tuple[str, ...]) -> str:
    """Name the known word that is nearest to this one, or all of them when none is near."""
    lower = {name.lower(): name for name in known}
    near = difflib.get_close_matches(word.lower().replace("_", ""), lower, n=1, cutoff=0.6)
    if near:
        return f"did you mean {lower[near[0]]}?"
    return f"known are {', '.join(known)}"


def _invalid(model: type[BaseModel], error: ValidationError) -> InvalidObject:
    details = error.errors(include_url=False)
    # A list counts as too short when entries of it are wrong; those are reported by themselves.
    told = [
        detail
        for detail in details
        if detail["type"] != "too_short" or len(detail["input"]) < detail.get("ctx", {}).get("min_length", 0)
    ]
    return InvalidObject([_field_error(model, detail) for detail in told or details])


def _field_error(model: type[BaseModel], detail: ErrorDetails) -> FieldError:
    steps = detail["loc"]
    path = path_of(steps) or "object"
    if detail["type"] == "missing":
        return FieldError(path, None, _required(model, steps))
    if detail["type"] == "extra_forbidden":
        known = _known_fields(model, steps[:-1])
        return FieldError(path, detail["input"], f"unknown field; {did_you_mean(str(steps[-1]), known)}")
    return FieldError(path, detail["input"], _message(detail))


def _message(detail: ErrorDetails) -> str:
    context = detail.get("ctx", {})
    match detail["type"]:
        case "string_pattern_mismatch":
            return f"must be {PATTERN_WORDS[context['pattern']]}"
        case "enum" | "literal_error":
            words = tuple(re.findall(r"[\w./-]+", str(context["expected"]).replace(" or ", " ")))
            hint = did_you_mean(str(detail["input"]), words)
            near = f"; {hint}" if hint.endswith("?") else ""
            return f"must be {'one of ' if len(words) > 1 else ''}{', '.join(words)}{near}"
        case known if known in _WORDS:
            return _WORDS[known].format(**context)
        case _:
            return detail["msg"]


def _required(model: type[BaseModel], steps: tuple[int | str, ...]) -> str:
    about = schema_at(structural_schema(model), steps).get("description", "")
    return f"is required: {about}" if about else "is required"


def _known_fields(model: type[BaseModel], steps: tuple[int | str, ...]) -> tuple[str, ...]:
    if not steps:
        return _TOP
    if steps[0] == "metadata":
        return _METADATA
    return tuple(schema_at(structural_schema(model), steps).get("properties", {}))
