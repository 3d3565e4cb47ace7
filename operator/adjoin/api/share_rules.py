"""CEL rules of a DeviceShare, as the API server evaluates them. `validate_share` says the same offline."""

from typing import Final

from adjoin.api.marks import Mark, frozen, rule
from adjoin.api.pool_rules import object_name

MODE_FIELDS: Final = {
    "TimeSliced": "timeSliced",
    "Fractional": "fractional",
    "MPS": "mps",
    "Partitioned": "partitioned",
    "VirtualFunctions": "virtualFunctions",
}
"""The field that carries the settings of each mode."""
MODES_NEEDING_SETTINGS: Final = ("TimeSliced", "Partitioned", "VirtualFunctions")


IDLE_RESET: Final = "idleReset goes with prepare OnDemand: a share that prepares devices by itself keeps them"


def _only_own(mode: str, field: str) -> Mark:
    return rule(
        f"!has(self.{field}) || self.mode == '{mode}'",
        says=f"'{field} goes with mode {mode}, not with %s'.format([self.mode])",
        path=f".{field}",
    )


def _needs_own(mode: str) -> Mark:
    field = MODE_FIELDS[mode]
    return rule(f"self.mode != '{mode}' || has(self.{field})", f"mode {mode} needs {field}")


OBJECT: Final = (object_name("share"),)

PARTITIONED: Final = (rule("has(self.layout) != has(self.dynamic)", "give exactly one of layout and dynamic"),)

SPEC: Final = (
    *(_only_own(mode, field) for mode, field in MODE_FIELDS.items()),
    *(_needs_own(mode) for mode in MODES_NEEDING_SETTINGS),
    rule("!has(self.idleReset) || self.prepare != 'Eager'", IDLE_RESET, path=".idleReset"),
    *(frozen(field, "share") for field in ("poolRef", "device", "mode")),
)
