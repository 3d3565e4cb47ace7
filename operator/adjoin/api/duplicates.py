"""Finds entries that a list may hold only once: keys of list-maps and items of sets, as the schema declares them."""

import json
from collections.abc import Iterator, Mapping
from typing import Any

from adjoin.api.errors import FieldError, path_of
from adjoin.api.schema import Schema

Steps = tuple[str | int, ...]


def duplicates(value: Any, schema: Schema, steps: Steps) -> Iterator[FieldError]:
    """Every second entry with the same key, at every depth. The value has the schema's shape."""
    if isinstance(value, list):
        yield from _in_list(value, schema, steps)
        for index, item in enumerate(value):
            yield from duplicates(item, schema.get("items", {}), (*steps, index))
    elif isinstance(value, Mapping):
        fields, others = schema.get("properties", {}), schema.get("additionalProperties", {})
        for key, item in value.items():
            if isinstance(item, list | Mapping):
                yield from duplicates(item, fields.get(key, others), (*steps, key))


def _in_list(items: list[Any], schema: Schema, steps: Steps) -> Iterator[FieldError]:
    match schema.get("x-kubernetes-list-type"):
        case "map":
            keys = schema["x-kubernetes-list-map-keys"]
            identities = [[item.get(key) for key in keys] for item in items]
            where: tuple[str, ...] = (keys[0],)
        case "set":
            identities = [[item] for item in items]
            where = ()
        case _:
            return
    seen: set[str] = set()
    for index, identity in enumerate(identities):
        text = json.dumps(identity)
        if text in seen:
            first = next(position for position, other in enumerate(identities) if other == identity)
            message = f"is the same as in {path_of((*steps, first))}; entries of this list must differ"
            yield FieldError(path_of((*steps, index, *where)), identity[0], message)
        seen.add(text)
