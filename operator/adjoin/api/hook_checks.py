"""What a hook's pod template may hold, and what of it needs rights that not everybody has.

In comes a template as a pool's owner wrote it, out come errors and the places at which it asks for more than a pod with
Pod Security level `restricted` and Adjoin's own ServiceAccount may have. Who may ask for that is not decided here.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from adjoin.api.errors import FieldError
from adjoin.api.names import HOOKS_ACCOUNT, LABEL_CLAIM
from adjoin.api.scalars import DNS_SUBDOMAIN

_GROUPS: Final = ("initContainers", "containers")
_PLAIN_VOLUMES: Final = frozenset({"emptyDir", "configMap", "downwardAPI", "ephemeral", "image"})
"""Volumes that show nothing of the node and nothing secret."""
_OURS: Final = re.compile("adjoin(-[0-9]+)?")
"""Names of the entries in spec.resourceClaims through which a hook gets its devices."""


def check_template(path: str, template: Mapping[str, Any], guarded: bool) -> Iterator[FieldError]:
    """Everything that is wrong with a template whoever wrote it. `guarded`: the pool has a guard, so hooks may have
    devices."""
    misshapen = list(_misshapen(path, template, _SHAPE))
    if misshapen:
        yield from misshapen
        return
    spec = template.get("spec")
    if not isinstance(spec, Mapping):
        yield FieldError(f"{path}.spec", spec, "give the pod's spec, with its containers")
        return
    containers = spec.get("containers")
    if not isinstance(containers, list) or not containers:
        yield FieldError(f"{path}.spec.containers", containers, "give at least one container")
        return
    labels = (template.get("metadata") or {}).get("labels") or {}
    if LABEL_CLAIM in labels:
        message = "a hook's pod asks for no DeviceClaim: it is given the devices that it works on"
        yield FieldError(f"{path}.metadata.labels[{LABEL_CLAIM}]", labels[LABEL_CLAIM], message)
    for field, message in (
        ("nodeName", "the hook runs on the node of its devices"),
        ("schedulingGates", "nobody would open them"),
    ):
        if spec.get(field):
            yield FieldError(f"{path}.spec.{field}", spec[field], f"leave it out: {message}")
    policy = spec.get("restartPolicy")
    if policy not in (None, "Never"):
        yield FieldError(f"{path}.spec.restartPolicy", policy, "must be Never or absent: `retries` says how often")
    for group in _GROUPS:
        for place, container in enumerate(spec.get(group) or ()):
            yield from _check_container(f"{path}.spec.{group}[{place}]", container)
    yield from _check_claims(path, spec, guarded)


def _misshapen(path: str, value: Any, shape: Mapping[str, Any]) -> Iterator[FieldError]:
    """Fields of an object that are no object, or no list of objects, where Kubernetes has one."""
    if not isinstance(value, Mapping):
        yield FieldError(path, value, "must be an object")
        return
    for field, inner in shape.items():
        found = value.get(field)
        if found is None:
            continue
        if isinstance(inner, list):
            if not isinstance(found, list):
                yield FieldError(f"{path}.{field}", found, "must be a list of objects")
                continue
            for place, each in enumerate(found):
                yield from _misshapen(f"{path}.{field}[{place}]", each, inner[0])
        else:
            yield from _misshapen(f"{path}.{field}", found, inner)


_CONTEXT: Final[dict[str, Any]] = {"capabilities": {}, "seccompProfile": {}, "appArmorProfile": {}}
_CONTAINER: Final[dict[str, Any]] = {
    "securityContext": _CONTEXT,
    "resources": {"claims": [{}]},
    "env": [{"valueFrom": {"secretKeyRef": {}}}],
    "envFrom": [{}],
    "ports": [{}],
}
_SHAPE: Final[dict[str, Any]] = {
    "metadata": {"labels": {}, "annotations": {}},
    "spec": {
        "securityContext": _CONTEXT,
        "affinity": {},
        "volumes": [{}],
        "tolerations": [{}],
        "resourceClaims": [{}],
        "initContainers": [_CONTAINER],
        "containers": [_CONTAINER],
    },
}
"""What is read of a template, here and where its Job is made: objects, and lists of objects."""


def _check_container(path: str, container: Mapping[str, Any]) -> Iterator[FieldError]:
    name = container.get("name")
    if not isinstance(name, str) or re.fullmatch(DNS_SUBDOMAIN, name) is None or "." in name:
        yield FieldError(f"{path}.name", name, "must be a DNS label such as main")
    if not isinstance(container.get("image"), str) or not container["image"]:
        yield FieldError(f"{path}.image", container.get("image"), "name the image to run")
    for place, each in enumerate(container.get("env") or ()):
        variable = each.get("name")
        if isinstance(variable, str) and variable.startswith("ADJOIN_"):
            yield FieldError(f"{path}.env[{place}].name", variable, "names that begin with ADJOIN_ are Adjoin's")


def _check_claims(path: str, spec: Mapping[str, Any], guarded: bool) -> Iterator[FieldError]:
    listed = spec.get("resourceClaims") or ()
    if listed and not guarded:
        message = "without guard nothing keeps others off what a hook has; it gets its devices as JSON (ADJOIN_DEVICES)"
        yield FieldError(f"{path}.spec.resourceClaims", [each.get("name") for each in listed], message)
    for place, each in enumerate(listed):
        name = each.get("name")
        if isinstance(name, str) and _OURS.fullmatch(name):
            yield FieldError(f"{path}.spec.resourceClaims[{place}].name", name, "the name is Adjoin's; take another")


def escalations(path: str, template: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Places at which a template asks for more than a restricted pod may have, with what they say. Of one that
    `check_template` refuses, none."""
    if next(_misshapen(path, template, _SHAPE), None) is not None:
        return
    spec = template.get("spec") or {}
    for field in ("hostNetwork", "hostPID", "hostIPC", "shareProcessNamespace"):
        if spec.get(field):
            yield f"{path}.spec.{field}", spec[field]
    if spec.get("hostUsers") is True:
        yield f"{path}.spec.hostUsers", True
    account = spec.get("serviceAccountName") or spec.get("serviceAccount")
    if account and account != HOOKS_ACCOUNT:
        yield f"{path}.spec.serviceAccountName", account
    if spec.get("automountServiceAccountToken"):
        yield f"{path}.spec.automountServiceAccountToken", True
    for place, volume in enumerate(spec.get("volumes") or ()):
        for kind in volume:
            if kind != "name" and kind not in _PLAIN_VOLUMES:
                yield f"{path}.spec.volumes[{place}].{kind}", volume[kind]
    yield from _security(f"{path}.spec.securityContext", spec.get("securityContext") or {})
    for group in _GROUPS:
        for place, container in enumerate(spec.get(group) or ()):
            here = f"{path}.spec.{group}[{place}]"
            yield from _security(f"{here}.securityContext", container.get("securityContext") or {})
            for number, port in enumerate(container.get("ports") or ()):
                if port.get("hostPort"):
                    yield f"{here}.ports[{number}].hostPort", port["hostPort"]
            for number, source in enumerate(container.get("envFrom") or ()):
                if source.get("secretRef"):
                    yield f"{here}.envFrom[{number}].secretRef", source["secretRef"]
            for number, variable in enumerate(container.get("env") or ()):
                if ((variable.get("valueFrom") or {}).get("secretKeyRef")) is not None:
                    yield f"{here}.env[{number}].valueFrom.secretKeyRef", variable["valueFrom"]["secretKeyRef"]


def _security(path: str, context: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for field in ("privileged", "allowPrivilegeEscalation"):
        if context.get(field):
            yield f"{path}.{field}", True
    added = (context.get("capabilities") or {}).get("add")
    if added:
        yield f"{path}.capabilities.add", list(added)
    if (context.get("seccompProfile") or {}).get("type") == "Unconfined":
        yield f"{path}.seccompProfile.type", "Unconfined"
    if (context.get("appArmorProfile") or {}).get("type") == "Unconfined":
        yield f"{path}.appArmorProfile.type", "Unconfined"
    if context.get("procMount") not in (None, "Default"):
        yield f"{path}.procMount", context["procMount"]
    if context.get("runAsUser") == 0:
        yield f"{path}.runAsUser", 0
