"""CEL rules of a DevicePool, as the API server evaluates them. `validate_pool` says the same offline.

Static devices are many, so no rule walks them: their names are list-map keys, and the rest is checked by
`validate_pool` alone.
"""

from typing import Final

from adjoin.api.marks import Mark, rule
from adjoin.api.names import OBJECT_NAME_MAX

_DEVICES: Final = "self.?devices.orValue([])"
_TENANTS: Final = "self.?tenancy.?tenants.orValue([])"
_DEVICE_NAMES: Final = f"{_DEVICES}.map(d, d.name).join(', ')"


def _unique_names(what: str) -> tuple[Mark, ...]:
    return (
        rule(
            "self.all(x, self.exists_one(y, y.name == x.name))",
            says=f"'names of {what} must differ, there are ' + self.map(x, x.name).join(', ')",
        ),
    )


def object_name(kind: str) -> Mark:
    """Names of cluster-scoped objects become label values."""
    return rule(
        f"size(self.metadata.name) <= {OBJECT_NAME_MAX}",
        says="'metadata.name ' + self.metadata.name + ' has ' + string(size(self.metadata.name)) + ' characters; a "
        f"{kind} may '"
        f" + 'have {OBJECT_NAME_MAX}, since its name becomes a label value'",
    )


def _hook_devices(phase: str) -> Mark:
    hooks = f"self.?lifecycle.?{phase}.orValue([])"
    return rule(
        f"{hooks}.all(h, h.?devices.orValue([]).all(n, {_DEVICES}.exists(d, d.name == n)))",
        says=f"'{phase} hooks name devices that the pool does not have; its devices are ' + {_DEVICE_NAMES}",
        path=f".lifecycle.{phase}",
    )


def _quota_keys(field: str) -> Mark:
    return rule(
        f"{_TENANTS}.all(t, t.?{field}.orValue({{}}).all(k, {_DEVICES}.exists(d, d.name == k)))",
        says=f"'{field} limits devices that the pool does not have; its devices are ' + {_DEVICE_NAMES}",
        path=".tenancy.tenants",
    )


OBJECT: Final = (object_name("pool"),)

SOURCE: Final = (
    rule(
        "[has(self.resourceSlices), has(self.nodeResource), has(self.static)].filter(x, x).size() == 1",
        says="string([has(self.resourceSlices), has(self.nodeResource), has(self.static)].filter(x, x).size())"
        " + ' sources; give exactly one of resourceSlices, nodeResource, static'",
    ),
)

CLASSES: Final = _unique_names("classes")
FABRIC: Final = _unique_names("levels")

ALIASES: Final = (
    rule(
        "self.all(k, k.matches('^[A-Za-z_][A-Za-z0-9_]{0,31}$'))",
        says="'names must be plain, at most 32 letters, digits and _, such as numaNode; not so: ' "
        "+ self.filter(k, !k.matches('^[A-Za-z_][A-Za-z0-9_]{0,31}$')).map(k, k).join(', ')",
    ),
)

PARAMETER: Final = (
    rule(
        "!has(self.default) || self.default in self.values",
        says="'default ' + self.default + ' is none of the values ' + self.values.join(', ')",
        path=".default",
    ),
)

TOLERATION: Final = (
    rule(
        "has(self.key) || self.?operator.orValue('Equal') == 'Exists'",
        "without a key the operator must be Exists (tolerates every taint)",
        path=".operator",
    ),
    rule(
        "self.?operator.orValue('Equal') != 'Exists' || !has(self.value) || self.value == ''",
        says="'operator Exists takes no value, found ' + self.value",
        path=".value",
    ),
)

HOOKS: Final = _unique_names("hooks")

SPEC: Final = (
    _hook_devices("init"),
    _hook_devices("cleanup"),
    _quota_keys("quota"),
    _quota_keys("borrowing"),
    rule(
        f"self.?tenancy.?default.orValue('') == '' || {_TENANTS}.exists(t, t.name == self.tenancy.default)",
        says=f"'default ' + self.tenancy.default + ' is none of the tenants ' + {_TENANTS}.map(t, t.name).join(', ')",
        path=".tenancy.default",
    ),
)
