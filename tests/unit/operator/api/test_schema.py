"""The converter says everything that a structural schema can say, and stops at what it cannot."""

from enum import StrEnum
from typing import Annotated, Any, Literal

import pytest
from pydantic import BaseModel, Field

from adjoin.api.marks import ATOMIC, SET, keyed, model_config, rule, rules
from adjoin.api.scalars import Bytes, PositiveDuration, StaticQuantity, Timestamp
from adjoin.api.schema import NotStructural, schema_at, structural_schema, without_empty


class Colour(StrEnum):
    RED = "Red"
    BLUE = "Blue"


class Inner(BaseModel):
    """An inner
    object."""

    model_config = model_config(rules(rule("has(self.name)", "needs a name")))

    name: str
    size: int = 3


class Outer(BaseModel):
    model_config = model_config()

    inner: Inner = Field(default=Inner(name="x"), description="Told at the field.")
    perhaps: Inner | None = None
    colour: Colour = Colour.BLUE
    fixed: Literal["one"] = "one"
    many: Annotated[tuple[Inner, ...], Field(max_length=4, json_schema_extra=keyed("name"))] = ()
    words: Annotated[tuple[str, ...], Field(json_schema_extra=SET)] = ()
    by_name: dict[str, Annotated[int, Field(ge=0)]] = Field(default_factory=dict)
    anything: Any = None
    amount: Bytes | None = None
    plain: StaticQuantity | None = None
    after: PositiveDuration = "5m"
    at: Timestamp | None = None
    above: Annotated[float, Field(ge=0, lt=2)] | None = None


SCHEMA = structural_schema(Outer)["properties"]


@pytest.mark.parametrize(
    ("field", "expected"),
    [
        pytest.param(
            "perhaps",
            {
                "description": "An inner object.",
                "type": "object",
                "required": ["name"],
                "properties": {
                    "name": {"type": "string"},
                    "size": {"type": "integer", "format": "int64", "default": 3},
                },
                "x-kubernetes-validations": [{"rule": "has(self.name)", "message": "needs a name"}],
            },
            id="an optional model is inlined, without null, with its rules and inner defaults",
        ),
        pytest.param(
            "colour", {"type": "string", "enum": ["Red", "Blue"], "default": "Blue"}, id="an enum keeps its default"
        ),
        pytest.param("fixed", {"type": "string", "enum": ["one"], "default": "one"}, id="a constant is an enum of one"),
        pytest.param(
            "words",
            {"type": "array", "items": {"type": "string"}, "x-kubernetes-list-type": "set"},
            id="an empty list is no default",
        ),
        pytest.param(
            "byName",
            {"type": "object", "additionalProperties": {"type": "integer", "format": "int64", "minimum": 0}},
            id="a dictionary is a map",
        ),
        pytest.param("anything", {"x-kubernetes-preserve-unknown-fields": True}, id="anything is kept as it is"),
        pytest.param("at", {"type": "string", "format": "date-time"}, id="a time"),
    ],
)
def test_field(field: str, expected: dict[str, Any]) -> None:
    assert SCHEMA[field] == expected


def test_model_default_is_cleaned_and_the_field_describes_itself() -> None:
    assert SCHEMA["inner"]["default"] == {"name": "x", "size": 3}
    assert SCHEMA["inner"]["description"] == "Told at the field."


def test_list_of_models_names_its_keys() -> None:
    assert SCHEMA["many"]["x-kubernetes-list-map-keys"] == ["name"]
    assert SCHEMA["many"]["maxItems"] == 4


def test_quantity_is_a_number_or_text_and_says_its_pattern_in_words() -> None:
    amount = SCHEMA["amount"]
    assert amount["x-kubernetes-int-or-string"] is True
    assert "type" not in amount
    assert "pattern" not in amount
    (spoken,) = amount["x-kubernetes-validations"]
    assert spoken["message"].startswith("must be a number of bytes")
    assert spoken["rule"].startswith("type(self) == int || string(self).matches(r'^")
    assert "pattern" in SCHEMA["plain"]


def test_plain_text_pattern_is_spoken_too() -> None:
    (spoken,) = SCHEMA["after"]["x-kubernetes-validations"]
    assert spoken["rule"].startswith("self.matches(r'^")
    assert SCHEMA["after"]["default"] == "5m"


class Unmarked(BaseModel):
    items: tuple[int, ...] = ()


class Either(BaseModel):
    value: int | str = 0


class Endless(BaseModel):
    child: "Endless | None" = None


class Pair(BaseModel):
    pair: Annotated[tuple[int, str], Field(json_schema_extra=ATOMIC)]


@pytest.mark.parametrize(
    ("model", "words"),
    [
        pytest.param(
            Unmarked, "Unmarked.items: a list must say its x-kubernetes-list-type", id="a list without list type"
        ),
        pytest.param(Either, "Either.value: a value of several types", id="a union of types"),
        pytest.param(Endless, "Endless contains itself", id="recursion"),
        pytest.param(Pair, "Pair.pair: prefixItems has no structural form", id="a tuple of fixed length"),
    ],
)
def test_what_has_no_structural_form_stops_the_conversion(model: type[BaseModel], words: str) -> None:
    with pytest.raises(NotStructural, match=words.replace("[", r"\[")):
        structural_schema(model)


def test_schema_at_follows_fields_lists_and_maps() -> None:
    schema = structural_schema(Outer)
    assert schema_at(schema, ("many", 0, "size"))["default"] == 3
    assert schema_at(schema, ("byName", "any/key"))["minimum"] == 0
    assert schema_at(schema, ("nothing", "here")) == {}


def test_without_empty_keeps_false_and_zero() -> None:
    assert without_empty({"a": None, "b": [], "c": {"d": None}, "e": False, "f": 0, "g": [{"h": None}]}) == {
        "e": False,
        "f": 0,
        "g": [{}],
    }
