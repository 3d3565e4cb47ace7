"""Do the pods of workloads fit the claims that they name?

In come Deployments, StatefulSets, Jobs, JobSets and pods, and the claims of the input; out come sentences about pods
that would wait for ever: a label that names no claim of their namespace, more pods than the claim has replicas, a
replica that does not exist or that several pods name, requests or containers that do not exist, devices that they could
not be given.

Only what a template says is looked at; nothing here places anything.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from adjoin.api import DeviceClaim
from adjoin.api.defaults import most_replicas
from adjoin.api.names import ANNOTATION_CONTAINERS, ANNOTATION_REPLICA, LABEL_CLAIM
from adjoin.cli.documents import Document
from adjoin_allocator.amounts import counted

Named = tuple[str, str]
_NONE: Mapping[str, Any] = {}


@dataclass(frozen=True, slots=True)
class Template:
    """Pods of one shape that a workload makes.

    Attributes:
        owner: `Deployment ns/name`, for messages.
        namespace: Where the pods are.
        metadata: The template's metadata.
        spec: The template's pod spec.
        pods: How many replicas they need of a claim of fixed size.
        alive: How many of them live at the same time.
        names: The replicas that they name by the index that their controller gives them, each as often as it is named;
            empty for pods that take any replica.
    """

    owner: str
    namespace: str
    metadata: Mapping[str, Any]
    spec: Mapping[str, Any]
    pods: int
    alive: int
    names: tuple[int, ...] = ()


def undelivered_pods(workloads: Iterable[Document], undelivered: Mapping[Named, str]) -> Iterator[str]:
    """Pods of claims of which `undelivered` says why a device of theirs could not be given to containers: such claims
    are planned all the same.
    """
    for template in (template for document in workloads for template in templates(document)):
        name = _mapping(template.metadata.get("labels")).get(LABEL_CLAIM)
        trouble = undelivered.get((template.namespace, str(name)))
        if trouble is not None and template.pods:
            yield f"{template.owner}: {trouble}"


def check_workloads(workloads: Iterable[Document], claims: Iterable[DeviceClaim]) -> list[str]:
    """What is wrong with the pods of `workloads`, in their order; then claims that have too few replicas for all of
    them.
    """
    known = {(claim.metadata.namespace or "", claim.metadata.name): claim for claim in claims}
    problems: list[str] = []
    wanted: dict[Named, list[Template]] = {}
    for template in (template for document in workloads for template in templates(document)):
        name = _mapping(template.metadata.get("labels")).get(LABEL_CLAIM)
        if name is None:
            continue
        claim = known.get((template.namespace, str(name)))
        if claim is None:
            problems.append(f"{template.owner}: label {LABEL_CLAIM}: no DeviceClaim {template.namespace}/{name}")
            continue
        wanted.setdefault((template.namespace, str(name)), []).append(template)
        problems += [f"{template.owner}: {problem}" for problem in _check(template, claim)]
    for (namespace, name), users in wanted.items():
        pods, replicas = sum(user.pods for user in users), most_replicas(known[namespace, name].spec)
        if pods > replicas:
            owners = ", ".join(dict.fromkeys(user.owner for user in users))
            problems.append(
                f"{owners}: {counted(pods, 'pod')} {'names' if pods == 1 else 'name'} DeviceClaim {namespace}/{name}, "
                f"which has {counted(replicas, 'replica')}: {pods - replicas} would wait"
            )
        else:
            problems += _misnamed(users, f"DeviceClaim {namespace}/{name}", replicas)
    return problems


def _misnamed(users: Sequence[Template], claim: str, replicas: int) -> Iterator[str]:
    """Replicas that pods name by their index and that are not there, or are another pod's."""
    named: dict[int, list[str]] = {}
    for user in users:
        # An annotation that names no replica is told with its text.
        chosen = ANNOTATION_REPLICA in _mapping(user.metadata.get("annotations"))
        for index in user.names:
            if index < replicas or not chosen:
                named.setdefault(index, []).append(user.owner)
    beyond = [index for index in named if index >= replicas]
    if beyond:
        owners = ", ".join(dict.fromkeys(owner for index in beyond for owner in named[index]))
        yield (
            f"{owners}: pods of index {_span(beyond)} name replicas that {claim} does not have: "
            f"it has 0 to {replicas - 1}"
        )
    twice = [index for index, owners in named.items() if len(owners) > 1 and index < replicas]
    if twice:
        owners = ", ".join(dict.fromkeys(owner for index in twice for owner in named[index]))
        yield (
            f"{owners}: several pods have index {_span(twice)} and name the same replica of {claim}, "
            "which serves one pod at a time"
        )


def _span(numbers: Sequence[int]) -> str:
    """`3`, or `0 to 3`, or the first few."""
    ordered = sorted(numbers)
    if len(ordered) == 1:
        return str(ordered[0])
    if ordered[-1] - ordered[0] == len(ordered) - 1:
        return f"{ordered[0]} to {ordered[-1]}"
    return ", ".join(map(str, ordered[:5])) + (" …" if len(ordered) > 5 else "")


def _check(template: Template, claim: DeviceClaim) -> Iterator[str]:
    annotations = _mapping(template.metadata.get("annotations"))
    containers = annotations.get(ANNOTATION_CONTAINERS)
    if containers is not None:
        yield from _check_containers(str(containers), template, claim)
    replica = annotations.get(ANNOTATION_REPLICA)
    if replica is not None:
        text, replicas = str(replica), most_replicas(claim.spec)
        if not (text.isascii() and text.isdigit()) or int(text) >= replicas:
            yield f"annotation {ANNOTATION_REPLICA}: {text!r}: must be 0 to {replicas - 1}, a replica of the claim"


def _check_containers(text: str, template: Template, claim: DeviceClaim) -> Iterator[str]:
    where = f"annotation {ANNOTATION_CONTAINERS}"
    try:
        wishes = json.loads(text)
    except ValueError:
        wishes = None
    if not isinstance(wishes, dict) or not all(isinstance(requests, list) for requests in wishes.values()):
        yield f'{where}: {text!r}: must be JSON such as {{"trainer": ["gpu", "nic"]}}'
        return
    containers = {
        str(container.get("name"))
        for key in ("containers", "initContainers")
        for container in _sequence(template.spec.get(key))
        if isinstance(container, Mapping)
    }
    requests = {request.name for request in claim.spec.requests}
    for container, names in wishes.items():
        if container not in containers:
            yield f"{where}: no container {container!r}; there are {', '.join(sorted(containers))}"
        for name in names:
            if name not in requests:
                yield f"{where}: no request {name!r} in the claim; there are {', '.join(sorted(requests))}"


def templates(document: Document) -> Iterator[Template]:
    """The pod templates of a workload, and a pod itself unless a controller made it, whose template is what counts."""
    body = document.body
    meta, spec = _mapping(body.get("metadata")), _mapping(body.get("spec"))
    namespace = str(meta.get("namespace") or "")
    owner = f"{document.kind} {namespace}/{meta.get('name') or meta.get('generateName') or ''}"
    if any(_mapping(reference).get("controller") for reference in _sequence(meta.get("ownerReferences"))):
        return
    match document.kind:
        case "Pod":
            finished = _mapping(body.get("status")).get("phase") in ("Succeeded", "Failed")
            yield Template(owner, namespace, meta, spec, 0 if finished else 1, 0 if finished else 1)
        case "Deployment" | "ReplicaSet":
            yield _template(owner, namespace, spec, _number(spec.get("replicas"), 1))
        case "StatefulSet":
            count, first = _number(spec.get("replicas"), 1), _number(_mapping(spec.get("ordinals")).get("start"), 0)
            yield _template(owner, namespace, spec, count, range(first, first + count))
        case "Job":
            yield _job(owner, namespace, spec)
        case "CronJob":
            yield _job(owner, namespace, _mapping(_mapping(spec.get("jobTemplate")).get("spec")))
        case "JobSet":
            for replicated in _sequence(spec.get("replicatedJobs")):
                spec = _mapping(_mapping(_mapping(replicated).get("template")).get("spec"))
                job = _job(owner, namespace, {"completionMode": "Indexed", **spec})
                jobs = _number(_mapping(replicated).get("replicas"), 1)
                # Every Job counts its pods from 0.
                yield replace(job, pods=job.pods * jobs, alive=job.alive * jobs, names=job.names * jobs)


def _job(owner: str, namespace: str, spec: Mapping[str, Any]) -> Template:
    """An indexed Job wants a replica for every completion, since the index names it; another one for every pod that
    runs at once."""
    parallelism = _number(spec.get("parallelism"), 1)
    completions = _number(spec.get("completions"), 1 if spec.get("parallelism") is None else parallelism)
    if spec.get("completionMode") == "Indexed":
        template = _template(owner, namespace, spec, completions, range(completions))
        return replace(template, alive=min(parallelism, completions))
    return _template(owner, namespace, spec, min(parallelism, completions))


def _template(owner: str, namespace: str, spec: Mapping[str, Any], pods: int, names: Iterable[int] = ()) -> Template:
    template = _mapping(spec.get("template"))
    metadata = _mapping(template.get("metadata"))
    chosen = _mapping(metadata.get("annotations")).get(ANNOTATION_REPLICA)
    if chosen is not None:
        # The annotation counts more than the index; what is no number is told elsewhere.
        text = str(chosen)
        names = [int(text)] * pods if text.isascii() and text.isdigit() else ()
    return Template(owner, namespace, metadata, _mapping(template.get("spec")), pods, pods, tuple(names))


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else _NONE


def _sequence(value: Any) -> Sequence[Any]:
    return value if isinstance(value, list) else ()


def _number(value: Any, absent: int) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else absent
