"""What a DeviceShare must hold beyond types and limits: the rules of `share_rules` in Python."""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from adjoin.api.errors import ErrorKind, FieldError
from adjoin.api.share import DeviceShare, Prepare
from adjoin.api.share_rules import IDLE_RESET, MODE_FIELDS, MODES_NEEDING_SETTINGS

_FROZEN: Final = ("poolRef", "device", "mode")


def check_share(share: DeviceShare) -> Iterator[FieldError]:
    """Everything that is wrong with a share by itself."""
    spec = share.spec
    given = {
        "timeSliced": spec.time_sliced,
        "fractional": spec.fractional,
        "mps": spec.mps,
        "partitioned": spec.partitioned,
        "virtualFunctions": spec.virtual_functions,
    }
    for mode, field in MODE_FIELDS.items():
        if given[field] is not None and spec.mode != mode:
            yield FieldError(f"spec.{field}", str(spec.mode), f"{field} goes with mode {mode}, not with {spec.mode}")
    field = MODE_FIELDS[spec.mode]
    if spec.mode in MODES_NEEDING_SETTINGS and given[field] is None:
        yield FieldError("spec", str(spec.mode), f"mode {spec.mode} needs {field}")
    if spec.idle_reset is not None and spec.prepare is Prepare.EAGER:
        yield FieldError("spec.idleReset", spec.idle_reset, IDLE_RESET)
    if (parts := spec.partitioned) and (parts.layout is None) == (parts.dynamic is None):
        yield FieldError("spec.partitioned", None, "give exactly one of layout and dynamic")


def check_share_change(new: Mapping[str, Any], old: Mapping[str, Any]) -> Iterator[FieldError]:
    """Everything that changed in a spec and must not. Both are specs without nulls."""
    for field in _FROZEN:
        if new.get(field) != old.get(field):
            message = f"{field} is immutable; delete the share and create it anew"
            yield FieldError(f"spec.{field}", new.get(field), message, ErrorKind.IMMUTABLE)
