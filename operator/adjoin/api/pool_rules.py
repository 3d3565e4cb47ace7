"""CEL rules of a DevicePool, as the API server evaluates them. `validate_pool` says the same offline.

Static devices are many, so no rule walks them: their names are list-map keys, and the rest is checked by
`validate_pool` alone.
"""

from typing import Final

from adjoin.api.marks import Mark, optional, rule
from adjoin.api.names import OBJECT_NAME_MAX

_DEVICES: Final = optional("self.devices", "[]")
_DEVICE_NAMES: Final = f"{_DEVICES}.map(d, d.name)"
_TENANTS: Final = optional("self.tenancy.tenants", "[]")


def _unique_names(what: str) -> tuple[Mark, ...]:
    return (
        rule(
            "self.all(x, self.exists_one(y, y.name == x.name))",
            says=f"'names of {what} must differ, found %s'.format([self.map(x, x.name)])",
        ),
    )


def object_name(kind: str) -> Mark:
    """Names of cluster-scoped objects become label values."""
    return rule(
        f"size(self.metadata.name) <= {OBJECT_NAME_MAX}",
        says=f"'metadata.name has %d characters; a {kind} may have {OBJECT_NAME_MAX}, since its name becomes a label "
        "value'.format([size(self.metadata.name)])",
    )


def _hook_devices(phase: str) -> Mark:
    return rule(
        f"{optional(f'self.lifecycle.{phase}', '[]')}.all(h, !has(h.devices) "
        "|| h.devices.all(n, has(self.devices) && self.devices.exists(d, d.name == n)))",
        says=f"'{phase} hooks name devices that the pool does not have; it has %s'.format([{_DEVICE_NAMES}])",
        path=f".lifecycle.{phase}",
    )


def _amount_keys(field: str) -> Mark:
    # Walks the devices, not the keys: the length of keys has no bound that the server knows.
    return rule(
        f"{_TENANTS}.all(t, !has(t.{field}) "
        f"|| (has(self.devices) && size(t.{field}) == self.devices.filter(d, d.name in t.{field}).size()))",
        says=f"'{field} limits devices that the pool does not have; it has %s'.format([{_DEVICE_NAMES}])",
        path=".tenancy.tenants",
    )


OBJECT: Final = (object_name("pool"),)

SOURCE: Final = (
    rule(
        "[has(self.resourceSlices), has(self.nodeResource), has(self.static)].filter(x, x).size() == 1",
        "give exactly one of resourceSlices, nodeResource and static",
    ),
)

CLASSES: Final = _unique_names("classes")
FABRIC: Final = _unique_names("levels")
HOOKS: Final = _unique_names("hooks")

ALIASES: Final = (
    rule(
        "self.all(k, k.matches('^[A-Za-z_][A-Za-z0-9_]{0,31}$'))",
        "names must be plain, such as numaNode: at most 32 letters, digits and _; full attribute names are the values",
    ),
)

PARAMETER: Final = (
    rule(
        "!has(self.default) || self.default in self.values",
        says="'default %s is none of the values %s'.format([self.default, self.values])",
        path=".default",
    ),
)

TOLERATION: Final = (
    rule(
        "has(self.key) || (has(self.operator) && self.operator == 'Exists')",
        "without a key the operator must be Exists, which tolerates every taint",
        path=".operator",
    ),
    rule(
        "!has(self.operator) || self.operator != 'Exists' || !has(self.value) || self.value == ''",
        says="'operator Exists takes no value, found %s'.format([self.value])",
        path=".value",
    ),
)

_DEFAULT_TENANT: Final = optional("self.tenancy.default", "''")

_MODE: Final = optional("self.delivery.mode", "'ResourceClaim'")
_GUARD: Final = optional("self.delivery.guard", "'DeviceTaintRule'")
_SPLIT: Final = optional("self.delivery.split", "'Size'")
UNGUARDED_ENVIRONMENT: Final = (
    "with mode Environment nothing but the guard keeps others off devices of ResourceSlices; it must be DeviceTaintRule"
)
SPLIT_ENVIRONMENT: Final = "with mode Environment there is nothing to split: it must be Size, or absent"

SPEC: Final = (
    rule(
        f"{_MODE} != 'Environment' || {_GUARD} != 'None' || {_DEVICES}.all(d, !has(d.source.resourceSlices))",
        UNGUARDED_ENVIRONMENT,
        path=".delivery.guard",
    ),
    rule(
        f"{_MODE} != 'Environment' || {_SPLIT} != 'Driver'",
        SPLIT_ENVIRONMENT,
        path=".delivery.split",
    ),
    _hook_devices("init"),
    _hook_devices("cleanup"),
    _amount_keys("quota"),
    _amount_keys("borrowing"),
    rule(
        f"{_DEFAULT_TENANT} == '' || {_TENANTS}.exists(t, t.name == {_DEFAULT_TENANT})",
        says=f"'default %s is none of the tenants'.format([{_DEFAULT_TENANT}])",
        path=".tenancy.default",
    ),
)
