"""What admission makes of a pod that asks for a DeviceClaim.

In come the raw pod and what is known of its claim; out goes the patch that puts our gate, a fresh binding token and
entries for its ResourceClaims (or environment from its ConfigMap) into it, or a refusal. What the user wrote in those
places is replaced, never believed: a token that can be chosen could be another pod's. So running it again (a sidecar
came in later) replaces everything consistently.
"""

from __future__ import annotations

import posixpath
import re
import secrets
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from adjoin.admission.variables import Environment, environment_of, refusals
from adjoin.api.errors import shown
from adjoin.api.names import (
    ANNOTATION_BINDING,
    ANNOTATION_CONTAINERS,
    ANNOTATION_REPLICA,
    CLAIM_NAME_MAX,
    GATE,
    LABEL_CLAIM,
    TOKEN_ALPHABET,
    TOKEN_LENGTH,
    VISIBLE_DEVICES,
    resource_claim_name,
)
from adjoin.api.scalars import DNS_SUBDOMAIN, PATTERN_WORDS
from adjoin.delivery import Layout, parse_containers
from adjoin.delivery.environment import VOID
from adjoin.delivery.limits import LIMITS

Obj = Mapping[str, Any]
Patch = list[dict[str, Any]]

_OURS = "adjoin-"
_GROUPS = ("initContainers", "containers")
_EPHEMERAL = "ephemeralContainers"
_DEVICES = ("/dev", "/proc")
"""Folders of the node in which its devices stand; /proc shows every file of the node under a process' root."""
_LISTED = "nvidia-container-devices"
"""NVIDIA's container runtime may be set up to add the card after which a mount under /var/run/<this> is named."""


class Refused(Exception):
    """The pod is not admitted; `errors` say why, each with field, value and remedy."""

    def __init__(self, errors: Sequence[str]) -> None:
        super().__init__("; ".join(errors))
        self.errors = tuple(errors)


def entry_name(part: int) -> str:
    """Name, within the pod, of the entry for one part of its devices."""
    return f"{_OURS}{part}"


def new_token() -> str:
    """A binding token that nobody can foretell."""
    fair = 256 - 256 % len(TOKEN_ALPHABET)
    drawn = ""
    while len(drawn) < TOKEN_LENGTH:
        # A byte beyond the last whole round of the alphabet would favour its first letters.
        drawn += "".join(TOKEN_ALPHABET[byte % len(TOKEN_ALPHABET)] for byte in secrets.token_bytes(16) if byte < fair)
    return drawn[:TOKEN_LENGTH]


def containers_of(pod: Obj) -> Iterator[tuple[str, int, Obj]]:
    """Every container that can hold devices, with the list that it stands in and its place there."""
    for group in _GROUPS:
        for place, container in enumerate((pod.get("spec") or {}).get(group) or ()):
            yield group, place, container


def _security(pod: Obj) -> Iterator[str]:
    """Ways around what the claim gives: with any of them a container reaches every device of the node."""
    remedy = "a pod with a DeviceClaim may reach the devices of its claim alone; remove it"
    spec = pod.get("spec") or {}
    if spec.get("hostPID"):
        yield f"spec.hostPID: true: {remedy}"
    for group, place, container in containers_of(pod):
        if (container.get("securityContext") or {}).get("privileged"):
            yield f"spec.{group}[{place}].securityContext.privileged: true: {remedy}"
        for number, mount in enumerate(container.get("volumeMounts") or ()):
            target = str(mount.get("mountPath") or "")
            if _LISTED in target.split("/"):
                yield f"spec.{group}[{place}].volumeMounts[{number}].mountPath: {shown(target)}: {remedy}"
    for place, volume in enumerate(spec.get("volumes") or ()):
        path = (volume.get("hostPath") or {}).get("path")
        if path is None:
            continue
        normal = posixpath.normpath("/" + str(path).lstrip("/"))
        if normal == "/" or any(normal == folder or normal.startswith(f"{folder}/") for folder in _DEVICES):
            memory = "shared memory is an emptyDir with medium: Memory"
            yield f"spec.volumes[{place}].hostPath.path: {shown(path)}: {remedy} ({memory})"


def _names(claim: str) -> Iterator[str]:
    if len(claim) > CLAIM_NAME_MAX or not re.fullmatch(DNS_SUBDOMAIN, claim):
        words = f"{PATTERN_WORDS[DNS_SUBDOMAIN]}, at most {CLAIM_NAME_MAX} characters"
        yield f"metadata.labels[{LABEL_CLAIM}]: {shown(claim)}: must be the name of a DeviceClaim: {words}"


def _replica(meta: Obj) -> Iterator[str]:
    for place in ("annotations", "labels"):
        text = (meta.get(place) or {}).get(ANNOTATION_REPLICA)
        if text is not None and not (text.isascii() and text.isdigit() and len(text) <= 4):
            yield f"metadata.{place}[{ANNOTATION_REPLICA}]: {shown(text)}: must be the index of a replica, from 0"


def _containers(pod: Obj, text: str, requests: Sequence[str] | None) -> tuple[dict[str, tuple[str, ...]], list[str]]:
    """Who gets what by the annotation, and what is wrong with it. `requests` are the claim's, None when it is not
    known."""
    field = f"metadata.annotations[{ANNOTATION_CONTAINERS}]"
    try:
        named = parse_containers(text)
    except ValueError as error:
        return {}, [f"{field}: {shown(text)}: {error}"]
    errors = []
    present = [str(container.get("name")) for _, _, container in containers_of(pod)]
    for container, wanted in named.items():
        if container not in present:
            errors.append(f"{field}: {shown(container)}: the pod has no such container (it has {', '.join(present)})")
        for request in wanted:
            if requests is not None and request not in requests:
                has = ", ".join(requests) or "none"
                errors.append(f"{field}: {shown(request)}: the DeviceClaim has no such request (it has {has})")
    return named, errors


def _environment(group: str, place: int, container: Obj) -> tuple[list[Any] | None, str]:
    """The container's environment with NVIDIA_VISIBLE_DEVICES silenced (None: as it is), and what is wrong with it.

    An explicit value wins over envFrom and over the image's own, neither of which can be seen here; so it is always
    set. A container that counts cards of a device plugin gets its value from there.
    """
    env = list(container.get("env") or ())
    resources = container.get("resources") or {}
    counted = any(
        name.startswith("nvidia.com/") for kind in ("limits", "requests") for name in resources.get(kind) or {}
    )
    mine = [each for each in env if each.get("name") == VISIBLE_DEVICES]
    if counted:
        field = f"spec.{group}[{place}].env[{VISIBLE_DEVICES}]"
        return None, f"{field}: {shown(mine[0].get('value'))}: set by the device plugin; remove it" if mine else ""
    wanted = [*(each for each in env if each.get("name") != VISIBLE_DEVICES), {"name": VISIBLE_DEVICES, "value": VOID}]
    if len(mine) == 1 and mine[0] == {"name": VISIBLE_DEVICES, "value": VOID}:
        return None, ""
    return wanted, ""


def _claims_of(
    container: Obj, layout: Layout, named: Mapping[str, tuple[str, ...]] | None, known: bool, dropped: set[str]
) -> list[dict[str, str]]:
    """The container's `resources.claims`: those of others as they are, and ours anew."""
    current = (container.get("resources") or {}).get("claims") or ()
    kept = [dict(each) for each in current if each.get("name") not in dropped]
    ours: list[dict[str, str]] = []
    wanted = None if named is None else named.get(str(container.get("name")), ())
    for number, part in enumerate(layout):
        if wanted is None:
            ours.append({"name": entry_name(number)})
        else:
            here = [request for request in wanted if request in part.names or not known]
            ours += [{"name": entry_name(number), "request": request} for request in here]
    return kept + ours


def mutate_pod(
    pod: Obj, layout: Layout, requests: Sequence[str] | None, environment: Environment | None = None
) -> tuple[Patch, list[str]]:
    """The JSON patch for a pod that asks for a claim, and warnings.

    Args:
        pod: The pod as it came.
        layout: Into how many ResourceClaims its devices go, and which request into which.
        requests: Names of the claim's requests, None when the claim is not known.
        environment: Its devices are handed over as environment instead of in ResourceClaims.

    Raises:
        Refused: With everything that is wrong.
    """
    meta, spec = pod.get("metadata") or {}, pod.get("spec") or {}
    annotations = meta.get("annotations") or {}
    claim = str((meta.get("labels") or {}).get(LABEL_CLAIM))
    errors = [*_names(claim), *_replica(meta), *_security(pod)]
    text = annotations.get(ANNOTATION_CONTAINERS)
    named: dict[str, tuple[str, ...]] | None = None
    if text is not None:
        named, wrong = _containers(pod, text, requests)
        errors += wrong
        if not text:
            named = None
    if environment is not None:
        layout = ()
    patch: Patch = []
    warnings: list[str] = []

    def put(path: str, value: Any) -> None:
        # `add` replaces a member that is there.
        patch.append({"op": "add", "path": path, "value": value})

    token = new_token()
    if isinstance(meta.get("annotations"), Mapping):
        put(f"/metadata/annotations/{_escaped(ANNOTATION_BINDING)}", token)
    else:
        put("/metadata/annotations", {ANNOTATION_BINDING: token})
    gates = spec.get("schedulingGates") or []
    if not any(gate.get("name") == GATE for gate in gates):
        put("/spec/schedulingGates", [{"name": GATE}, *gates])
    entries = spec.get("resourceClaims") or []
    foreign = [entry for entry in entries if not _is_ours(entry)]
    ours = [
        {"name": entry_name(part), "resourceClaimName": resource_claim_name(claim, token, part)}
        for part in range(len(layout))
    ]
    if ours or foreign != list(entries):
        put("/spec/resourceClaims", [*foreign, *ours])
    dropped = {str(entry.get("name")) for entry in entries if _is_ours(entry)} | {each["name"] for each in ours}
    for group, place, container in containers_of(pod):
        claims = _claims_of(container, layout, named, requests is not None, dropped)
        resources = container.get("resources") or {}
        if claims != list(resources.get("claims") or ()):
            put(f"/spec/{group}/{place}/resources", {**resources, "claims": claims})
        env: list[Any] | None
        if environment is not None:
            errors += refusals(environment, f"spec.{group}[{place}]", container)
            env, told = environment_of(container, claim, token, named, parted=environment.parted)
            own = {str(each.get("name")) for each in container.get("env") or () if _set_by_user(each)}
            for name in sorted(own & set(LIMITS)) if environment.parted else ():
                limited = "is replaced: the claim says how much of a card the container gets"
                warnings.append(f"spec.{group}[{place}].env[{name}] {limited}")
            said = f"{told} is replaced: the container gets the claim's devices" if told else ""
        else:
            env, error = _environment(group, place, container)
            errors += [error] if error else []
            given = env is not None and any(each.get("name") == VISIBLE_DEVICES for each in container.get("env") or ())
            said = f"is set to {VOID}: the driver hands the claim's devices to the container" if given else ""
        if env is not None:
            put(f"/spec/{group}/{place}/env", env)
        if said:
            warnings.append(f"spec.{group}[{place}].env[{VISIBLE_DEVICES}] {said}")
    if errors:
        raise Refused(errors)
    return patch, warnings


def mutate_ephemeral(pod: Obj, old: Obj) -> tuple[Patch, list[str]]:
    """The JSON patch for a pod that gets ephemeral containers, and warnings: they have nothing of the claim (Kubernetes
    gives them no resources), and their environment must not give them more. Those of before cannot change."""
    known = {each.get("name") for each in (old.get("spec") or {}).get(_EPHEMERAL) or ()}
    patch: Patch = []
    warnings: list[str] = []
    for place, container in enumerate((pod.get("spec") or {}).get(_EPHEMERAL) or ()):
        env, _ = _environment(_EPHEMERAL, place, container)
        if env is None or container.get("name") in known:
            continue
        patch.append({"op": "add", "path": f"/spec/{_EPHEMERAL}/{place}/env", "value": env})
        if any(each.get("name") == VISIBLE_DEVICES for each in container.get("env") or ()):
            field = f"spec.{_EPHEMERAL}[{place}].env[{VISIBLE_DEVICES}]"
            warnings.append(f"{field} is set to {VOID}: an ephemeral container gets no devices")
    return patch, warnings


def _set_by_user(entry: Obj) -> bool:
    reference = (entry.get("valueFrom") or {}).get("configMapKeyRef") or {}
    return not str(reference.get("name") or "").startswith(_OURS)


def _is_ours(entry: Obj) -> bool:
    return str(entry.get("resourceClaimName") or "").startswith(_OURS) or str(entry.get("name") or "").startswith(_OURS)


def _escaped(key: str) -> str:
    return key.replace("~", "~0").replace("/", "~1")
