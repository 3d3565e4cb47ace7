"""The Job of one attempt of a hook, and the ResourceClaim that gives it the devices.

In come the pool's template, what the attempt is for and the devices; out go the requests that make them. The template's
own words stay as they are: what is added says where the pod runs, what it works on, and takes rights away that it did
not ask for. Whoever declares a pool may run any Job in the operator's namespace; admission checks that they may.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from adjoin.api.names import (
    ANNOTATION_RUN,
    DEVICE_CLASS,
    DEVICES_PER_RESOURCE_CLAIM,
    DRIVER,
    FINALIZER,
    HOOKS_ACCOUNT,
    LABEL_HOOK,
    hook_claim_name,
)
from adjoin.api.pool_policy import Hook
from adjoin.delivery.resourceclaims import allocation_results, one_node, toleration
from adjoin.facts import PoolFacts
from adjoin.intents import FROM_PREVIOUS, Kind, Step, Verb
from adjoin.jobs import run_text
from adjoin.lifecycle import BUILTIN_FINALIZER, Errand, Relations, Run, deadline_seconds, rfc3339
from adjoin_allocator.cel import AttributeValue, Version
from adjoin_allocator.model import Device

_ENTRY = "adjoin"
"""Name of the hook's ResourceClaim within its pod, and how those of further ones begin."""
_UNSCHEDULABLE = {"key": "node.kubernetes.io/unschedulable", "operator": "Exists", "effect": "NoSchedule"}
"""A cordoned node takes no new pods, but what is left on it has to be cleaned."""


@dataclass(frozen=True, slots=True, eq=False)
class HookDevice:
    """A device that a hook works on.

    Attributes:
        request: The claim's request that it serves, or "".
        name: Its name in the pool, such as `gpu`.
        device: The device as it is today.
        hardware_id: Its stable identity.
        share: What is told of the share that divides it, None where it is meant whole.
    """

    request: str
    name: str
    device: Device
    hardware_id: str
    share: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Task:
    """One attempt of a hook.

    Attributes:
        errand: Whose devices.
        run: Which attempt.
        hook: What the pool declares.
        pool: The DevicePool.
        claim: `namespace/name` of the DeviceClaim, or "".
        claim_uid: Its UID; of one that is gone, that of the claim which had the devices last.
        node: Where the devices are.
        devices: The hook's set.
        parameters: Values by name.
        namespace: The operator's own.
        guarded: Whether the pool's guard keeps others off, so that a ResourceClaim of the hook's own is safe.
    """

    errand: Errand
    run: Run
    hook: Hook
    pool: PoolFacts
    claim: str
    claim_uid: str
    node: str
    devices: tuple[HookDevice, ...]
    parameters: Mapping[str, str]
    namespace: str
    guarded: bool


def parameter_variable(name: str) -> str:
    """Environment variable of a parameter."""
    return f"ADJOIN_PARAMETER_{name.upper().replace('-', '_')}"


def _plain(value: AttributeValue) -> Any:
    if isinstance(value, tuple):
        return [_plain(each) for each in value]
    return str(value) if isinstance(value, Version) else value


LONGEST_TEXT = 100_000
"""Linux takes no environment string of 128 KiB or more; a container that has one cannot start."""


def devices_text(devices: Sequence[HookDevice], owner: str) -> str:
    """`ADJOIN_DEVICES`: the set as JSON, each with the UID of the claim that has it. A set that is too large for an
    environment goes without attributes and capacity."""

    def text(full: bool) -> str:
        return json.dumps([_described(each, owner, full) for each in devices], separators=(",", ":"))

    whole = text(True)
    return whole if len(whole) <= LONGEST_TEXT else text(False)


def _described(each: HookDevice, owner: str, full: bool) -> dict[str, Any]:
    entry: dict[str, Any] = {
        "request": each.request,
        "name": each.name,
        "driver": each.device.id.driver,
        "pool": each.device.id.pool,
        "device": each.device.id.device,
        "id": each.hardware_id,
        "owner": owner,
    }
    if each.share is not None:
        entry["share"] = dict(each.share)
    if full:
        entry["attributes"] = {key: _plain(value) for key, value in sorted(each.device.attributes.items())}
        entry["capacity"] = {key: str(amount) for key, amount in sorted(each.device.capacity.items())}
    return entry


def environment(task: Task) -> list[dict[str, str]]:
    """What a hook's containers are told."""
    values = {
        "ADJOIN_PHASE": task.run.stage.value.lower(),
        "ADJOIN_HOOK": task.hook.name,
        "ADJOIN_CLAIM_UID": task.claim_uid,
        "ADJOIN_CLAIM": task.claim,
        "ADJOIN_REPLICA": str(task.errand.index) if task.errand.index >= 0 else "",
        "ADJOIN_NODE": task.node,
        "ADJOIN_ATTEMPT": str(task.run.attempt),
        "ADJOIN_DEVICES": devices_text(task.devices, task.claim_uid),
        **{parameter_variable(name): value for name, value in sorted(task.parameters.items())},
    }
    return [{"name": name, "value": value} for name, value in values.items()]


def published(task: Task) -> bool:
    """Whether the hook's pod gets the devices themselves: a driver has to be there, and the guard."""
    return task.guarded and bool(task.devices) and all(each.device.id.driver != DRIVER for each in task.devices)


def begin(task: Task, relations: Relations, now: float) -> tuple[Step, ...]:
    """Requests that begin an attempt, less those that a crash cut off later. Its Job comes last: whoever finds it finds
    all that it needs. None while a ResourceClaim of its name is somebody else's, or on its way out."""
    name = task.errand.job_name(task.run)
    steps: list[Step] = []
    for part, devices in enumerate(_parts(task)):
        claim_name = hook_claim_name(name, part)
        found = relations.resource_claims.get((task.namespace, claim_name))
        if found is not None and (found.hook != task.pool.meta.uid or found.meta.deleting is not None):
            return ()
        if found is None or not found.allocated:
            if found is None:
                body = _resource_claim(task, claim_name, devices)
                steps.append(Step(Verb.CREATE, Kind.RESOURCE_CLAIM, task.namespace, claim_name, body=body))
            uid, version = (found.meta.uid, found.meta.version) if found is not None else ("", FROM_PREVIOUS)
            status = _status(task, devices, now)
            steps.append(Step(Verb.PATCH_STATUS, Kind.RESOURCE_CLAIM, task.namespace, claim_name, uid, version, status))
    steps.append(Step(Verb.CREATE, Kind.JOB, task.namespace, name, body=_job(task, name)))
    return tuple(steps)


def _parts(task: Task) -> list[tuple[HookDevice, ...]]:
    """The devices by ResourceClaim: one takes so many and no more. None where the hook gets them as JSON only."""
    if not published(task):
        return []
    return [
        task.devices[at : at + DEVICES_PER_RESOURCE_CLAIM]
        for at in range(0, len(task.devices), DEVICES_PER_RESOURCE_CLAIM)
    ]


def _entry_name(part: int) -> str:
    return _ENTRY if part == 0 else f"{_ENTRY}-{part}"


def _owner(task: Task) -> list[dict[str, Any]]:
    # The DeviceClaim is in another namespace, where no owner of these can be.
    meta = task.pool.meta
    return [
        {
            "apiVersion": Kind.DEVICE_POOL.value.api_version,
            "kind": Kind.DEVICE_POOL.value.kind,
            "name": meta.name,
            "uid": meta.uid,
            "controller": False,
            "blockOwnerDeletion": False,
        }
    ]


def _labels(task: Task) -> dict[str, str]:
    return {LABEL_HOOK: task.run.stage.value.lower()}


def _resource_claim(task: Task, name: str, devices: Sequence[HookDevice]) -> dict[str, Any]:
    return {
        "apiVersion": Kind.RESOURCE_CLAIM.value.api_version,
        "kind": Kind.RESOURCE_CLAIM.value.kind,
        "metadata": {
            "name": name,
            "namespace": task.namespace,
            "labels": _labels(task),
            "annotations": {ANNOTATION_RUN: run_text(task.errand.key(task.run))},
            # Kubernetes takes the allocation back when the pod has ended; the guard keeps others off meanwhile.
            "finalizers": [BUILTIN_FINALIZER],
            "ownerReferences": _owner(task),
        },
        "spec": {
            "devices": {
                "requests": [
                    {
                        "name": _ENTRY,
                        "exactly": {
                            "deviceClassName": DEVICE_CLASS,
                            "allocationMode": "ExactCount",
                            "count": len(devices),
                            "tolerations": [toleration(task.pool.meta.name)],
                        },
                    }
                ]
            }
        },
    }


def _status(task: Task, given: Sequence[HookDevice], now: float) -> dict[str, Any]:
    name = f"{task.errand.subject}/{task.errand.index}/{task.errand.job_name(task.run)}"
    devices = [each.device for each in given]
    return {
        "status": {
            "allocation": {
                "devices": {"results": allocation_results(_ENTRY, devices, task.pool.meta.name, name)},
                "nodeSelector": one_node(task.node),
                "allocationTimestamp": rfc3339(now),
            }
        }
    }


def _job(task: Task, name: str) -> dict[str, Any]:
    template = copy.deepcopy(dict(task.hook.template))
    meta, spec = dict(template.get("metadata") or {}), dict(template.get("spec") or {})
    meta["labels"] = {**(meta.get("labels") or {}), **_labels(task)}
    told = environment(task)
    taken = {each["name"] for each in told}
    entries = {_entry_name(part): hook_claim_name(name, part) for part in range(len(_parts(task)))}
    claims = [{"name": entry} for entry in entries]
    for group in ("initContainers", "containers"):
        if group in spec:
            spec[group] = [_container(container, told, taken, claims) for container in spec[group] or ()]
    if claims:
        mine = [{"name": entry, "resourceClaimName": claim} for entry, claim in entries.items()]
        spec["resourceClaims"] = [*(spec.get("resourceClaims") or ()), *mine]
    spec["restartPolicy"] = "Never"
    spec["affinity"] = _pinned(spec.get("affinity"), task.node)
    spec["tolerations"] = _tolerations(task, spec.get("tolerations") or ())
    spec.setdefault("serviceAccountName", HOOKS_ACCOUNT)
    spec.setdefault("automountServiceAccountToken", False)
    security = dict(spec.get("securityContext") or {})
    security.setdefault("seccompProfile", {"type": "RuntimeDefault"})
    spec["securityContext"] = security
    return {
        "apiVersion": Kind.JOB.value.api_version,
        "kind": Kind.JOB.value.kind,
        "metadata": {
            "name": name,
            "namespace": task.namespace,
            "labels": _labels(task),
            "annotations": {ANNOTATION_RUN: run_text(task.errand.key(task.run))},
            # It stays until its outcome is recorded, whoever deletes it.
            "finalizers": [FINALIZER],
            "ownerReferences": _owner(task),
        },
        "spec": {
            "backoffLimit": 0,
            "completions": 1,
            "parallelism": 1,
            "activeDeadlineSeconds": deadline_seconds(task.hook),
            "template": {"metadata": meta, "spec": spec},
        },
    }


def _container(
    container: Mapping[str, Any], told: Sequence[dict[str, str]], taken: set[str], claims: Sequence[dict[str, str]]
) -> dict[str, Any]:
    made = dict(container)
    # Ours come first, so that the template's own may refer to them.
    made["env"] = [*told, *(each for each in made.get("env") or () if each.get("name") not in taken)]
    made.setdefault("terminationMessagePolicy", "FallbackToLogsOnError")
    if claims:
        resources = dict(made.get("resources") or {})
        resources["claims"] = [*(resources.get("claims") or ()), *claims]
        made["resources"] = resources
    return made


def _pinned(affinity: Mapping[str, Any] | None, node: str) -> dict[str, Any]:
    """The template's affinity to pods stays; the node is not for it to choose."""
    made = dict(affinity or {})
    made["nodeAffinity"] = {"requiredDuringSchedulingIgnoredDuringExecution": one_node(node)}
    return made


def _tolerations(task: Task, own: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    listed = [dict(each) for each in own]
    for each in task.pool.pool.spec.tolerations:
        entry = each.model_dump(mode="json", by_alias=True, exclude_none=True)
        listed += [entry] if entry not in listed else []
    return [*listed, *([] if _UNSCHEDULABLE in listed else [_UNSCHEDULABLE])]
