"""What is refused: one answer for admission, the command line and the loop.

In comes an object as dictionary (and, for a change, the one before), out comes a list of errors; an empty list means
that Adjoin will act on every field of it. The CRD's own rules are repeated here, so that `plan` without a server
refuses the same; what the API server cannot know (CEL that does not compile, what is not supported yet) is here alone.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from adjoin.api.claim import DeviceClaim
from adjoin.api.claim_checks import check_claim, check_claim_change
from adjoin.api.common import ObjectMeta
from adjoin.api.duplicates import duplicates
from adjoin.api.errors import FieldError, InvalidObject, path_of
from adjoin.api.names import ANNOTATION_DEFAULT_POOL, ANNOTATION_RELEASE, CLAIM_NAME_MAX, GROUP, OBJECT_NAME_MAX, Kind
from adjoin.api.parse import Object, parse_strict, without_nulls
from adjoin.api.pool import DevicePool
from adjoin.api.pool_checks import check_pool
from adjoin.api.releases import read_releases
from adjoin.api.scalars import DNS_SUBDOMAIN, PATTERN_WORDS
from adjoin.api.schema import Schema, structural_schema
from adjoin.api.share import DeviceShare
from adjoin.api.share_checks import check_share, check_share_change
from adjoin.api.supported import unsupported
from adjoin_allocator.cel import CompileError, compile_selector

Obj = Mapping[str, Any]

_GENERATED_SUFFIX: Final = 5
"""Characters that the API server puts behind metadata.generateName."""


def validate_claim(obj: Obj, old: Obj | None = None) -> list[FieldError]:
    """Everything that is wrong with a DeviceClaim, or with changing `old` into it."""
    return _validate(Kind.DEVICE_CLAIM, DeviceClaim, obj, old, check_claim, check_claim_change)


def validate_pool(obj: Obj, old: Obj | None = None) -> list[FieldError]:
    """Everything that is wrong with a DevicePool; it may be changed into anything that is right by itself."""
    return _validate(Kind.DEVICE_POOL, DevicePool, obj, old, check_pool, None)


def validate_share(obj: Obj, old: Obj | None = None) -> list[FieldError]:
    """Everything that is wrong with a DeviceShare, or with changing `old` into it."""
    return _validate(Kind.DEVICE_SHARE, DeviceShare, obj, old, check_share, check_share_change)


def validate(obj: Obj, old: Obj | None = None) -> list[FieldError]:
    """The same for an object of any of the three kinds.

    Raises:
        ValueError: The object is of no such kind.
    """
    match obj.get("kind"):
        case Kind.DEVICE_CLAIM:
            return validate_claim(obj, old)
        case Kind.DEVICE_POOL:
            return validate_pool(obj, old)
        case Kind.DEVICE_SHARE:
            return validate_share(obj, old)
        case other:
            raise ValueError(f"{other!r} is none of {', '.join(Kind)}")


def _validate(
    kind: Kind,
    model: type[Object],
    obj: Obj,
    old: Obj | None,
    check: Callable[[Object], Iterator[FieldError]],
    check_change: Callable[[Obj, Obj], Iterator[FieldError]] | None,
) -> list[FieldError]:
    schema: Schema = structural_schema(model)
    clean: dict[str, Any] = without_nulls(obj)
    metadata = clean.get("metadata")
    if old is not None or (isinstance(metadata, Mapping) and metadata.get("uid")):
        # The API server holds the object and has checked its status, which may be that of a newer Adjoin.
        clean.pop("status", None)
    errors: list[FieldError] = []
    try:
        parsed = parse_strict(model, clean)
    except InvalidObject as invalid:
        errors += invalid.errors
    else:
        errors += _check_name(kind, parsed.metadata)
        errors += _check_annotations(kind, (metadata or {}).get("annotations"))
        errors += duplicates(clean["spec"], schema["properties"]["spec"], ("spec",))
        errors += check(parsed)
        errors += _check_selectors(clean["spec"], ("spec",))
        if old is not None and check_change is not None:
            errors += check_change(clean["spec"], without_nulls(old).get("spec", {}))
    return [*errors, *unsupported(kind, clean, schema)]


def _check_name(kind: Kind, metadata: ObjectMeta) -> Iterator[FieldError]:
    name, room = metadata.name, CLAIM_NAME_MAX if kind is Kind.DEVICE_CLAIM else OBJECT_NAME_MAX
    length = len(name)
    if not name and metadata.generate_name:
        name, length = metadata.generate_name, len(metadata.generate_name) + _GENERATED_SUFFIX
    elif not re.fullmatch(DNS_SUBDOMAIN, name):
        yield FieldError("metadata.name", name or None, f"must be {PATTERN_WORDS[DNS_SUBDOMAIN]}")
    if length > room:
        why = "objects made for it carry its name and more" if kind is Kind.DEVICE_CLAIM else "it becomes a label value"
        message = f"name has {length} characters; a {kind} may have {room}, since {why}"
        yield FieldError("metadata.name", name, message)


def _check_annotations(kind: Kind, annotations: Any) -> Iterator[FieldError]:
    """A key of ours that does nothing would be a wish that nobody hears."""
    if not isinstance(annotations, Mapping):
        return
    for key, value in annotations.items():
        path = f"metadata.annotations[{key}]"
        if key == ANNOTATION_DEFAULT_POOL and kind is Kind.DEVICE_POOL:
            if value not in ("true", "false"):
                yield FieldError(path, value, "must be 'true' (the pool of claims that name none) or 'false'")
        elif key == ANNOTATION_RELEASE and kind is Kind.DEVICE_POOL:
            try:
                read_releases(str(value))
            except ValueError as error:
                yield FieldError(path, value, str(error))
        elif key.startswith(f"{GROUP}/"):
            known = (
                f"only {ANNOTATION_DEFAULT_POOL} and {ANNOTATION_RELEASE} are"
                if kind is Kind.DEVICE_POOL
                else "none is"
            )
            yield FieldError(path, value, f"not an annotation of a {kind}: {known}")


def _check_selectors(value: Any, steps: tuple[str | int, ...]) -> Iterator[FieldError]:
    """Compile every device selector of the object."""
    if isinstance(value, list):
        for index, item in enumerate(value):
            yield from _check_selectors(item, (*steps, index))
    elif isinstance(value, Mapping):
        for key, item in value.items():
            if key == "cel" and isinstance(item, str) and len(steps) > 1 and steps[-2] == "selectors":
                yield from _compile(item, (*steps, key))
            elif key != "template":
                yield from _check_selectors(item, (*steps, key))


def _compile(expression: str, steps: tuple[str | int, ...]) -> Iterator[FieldError]:
    try:
        compile_selector(expression)
    except CompileError as error:
        yield FieldError(path_of(steps), expression, str(error))
