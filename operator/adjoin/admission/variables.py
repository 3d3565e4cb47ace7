"""What admission makes of the environment of containers whose claim hands its devices over as environment.

In comes a container with what it is to get; out goes its environment, with references into the ConfigMap that will be
there before it starts. An explicit value wins over envFrom and over the image's own, neither of which can be seen here,
so NVIDIA_VISIBLE_DEVICES is always set. What the container sets for libraries that only choose among what they see is
its own business and stays.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from adjoin.api.errors import shown
from adjoin.api.names import VISIBLE_DEVICES, config_map_name
from adjoin.delivery.environment import ALWAYS, OPTIONAL, VOID, key_of
from adjoin.delivery.limits import LIMITS, SWITCHES

Obj = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Environment:
    """A claim hands its devices over as environment.

    Attributes:
        counted: Resources by which a device plugin would give a container cards of its own choice.
        parted: The claim may have parts of devices: their limits are for the claim to say.
    """

    counted: frozenset[str] = frozenset()
    parted: bool = False

    def asks_plugin(self, container: Obj) -> Iterator[str]:
        """Resources of a container that would have a device plugin choose cards for it."""
        resources = container.get("resources") or {}
        names = {name for kind in ("limits", "requests") for name in resources.get(kind) or {}}
        for name in sorted(names):
            if name in self.counted or name.startswith("nvidia.com/"):
                yield name


def refusals(environment: Environment, path: str, container: Obj) -> Iterator[str]:
    """What keeps the container from getting the claim's devices alone. `path` is that of the container."""
    for name in environment.asks_plugin(container):
        resources = container.get("resources") or {}
        kind = "limits" if name in (resources.get("limits") or {}) else "requests"
        amount = (resources.get(kind) or {}).get(name)
        remedy = "its device plugin would add devices of its own choice to those of the claim; remove it"
        yield f"{path}.resources.{kind}[{name}]: {shown(amount)}: {remedy}"
    for entry in (container.get("env") or ()) if environment.parted else ():
        if entry.get("name") in SWITCHES:
            remedy = "it would reach beyond the claim's part of a card; remove it, or claim the whole card"
            yield f"{path}.env[{entry['name']}]: {shown(entry.get('value') or entry.get('valueFrom'))}: {remedy}"


def _is_ours(entry: Obj) -> bool:
    """Left from an earlier run of this webhook, or written to look so."""
    reference = (entry.get("valueFrom") or {}).get("configMapKeyRef") or {}
    return entry.get("name") in (*OPTIONAL, *LIMITS) and str(reference.get("name") or "").startswith("adjoin-")


def _reference(variable: str, config_map: str, container: str | None) -> dict[str, Any]:
    reference: dict[str, Any] = {"name": config_map, "key": key_of(variable, container)}
    if variable in (*OPTIONAL, *LIMITS):
        reference["optional"] = True
    return {"name": variable, "valueFrom": {"configMapKeyRef": reference}}


def environment_of(
    container: Obj, claim: str, token: str, named: Mapping[str, Sequence[str]] | None, *, parted: bool = False
) -> tuple[list[Any], str]:
    """The container's environment, and what it said of NVIDIA_VISIBLE_DEVICES that does not count ("" where nothing).

    `named` says which container gets which requests, None: everybody gets all. Where the claim may have parts of
    devices (`parted`), what the container says of their limits does not count either.
    """
    before = list(container.get("env") or ())
    name = str(container.get("name"))
    replaced = (*ALWAYS, *(LIMITS if parted else ()))
    kept = [each for each in before if each.get("name") not in replaced and not _is_ours(each)]
    dropped = [each for each in before if each.get("name") == VISIBLE_DEVICES and not _ours_or_void(each)]
    told = shown(dropped[0].get("value") or dropped[0].get("valueFrom") or "") if dropped else ""
    if named is not None and not named.get(name):
        return [*kept, {"name": VISIBLE_DEVICES, "value": VOID}], told
    own = {each.get("name") for each in kept}
    config_map = config_map_name(claim, token)
    alone = None if named is None else name
    wanted = [variable for variable in (*replaced, *OPTIONAL) if variable not in own]
    return [*kept, *(_reference(variable, config_map, alone) for variable in wanted)], told


def _ours_or_void(entry: Obj) -> bool:
    reference = (entry.get("valueFrom") or {}).get("configMapKeyRef") or {}
    return entry.get("value") == VOID or str(reference.get("name") or "").startswith("adjoin-")
