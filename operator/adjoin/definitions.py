"""Whether the CustomResourceDefinitions on the server are those of this operator.

In comes a client; out goes, once the kinds are served with every field that this operator writes or reads, the leave to
start, and until then what is wrong and how to mend it. An operator ahead of its definitions would see the API server
drop fields of users' specs and of its own status, and write the latter again for ever; so it waits, is not ready, and
the replicas of before go on. An operator behind its definitions works: what it does not know is refused at admission.

kopf would never notice a definition that comes later. Nothing here writes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from typing import Final

import structlog

from adjoin.api.crd import DEFINITIONS, Definition, manifest
from adjoin.api.names import ANNOTATION_SCHEMA, API_VERSION, PLURALS, VERSION
from adjoin.facts import Raw
from adjoin.kube import Forbidden, Kube, KubeError, NotFound

LOOK_SECONDS: Final = 2.0
_NAMED: Final = 5
_PATH: Final = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Fit:
    """How a definition on the server compares with our own: fields and enum values by path, such as `spec.replicas`.

    Attributes:
        lacking: What we have and it has not.
        beyond: What it has and we have not.
        same: It carries the fingerprint of our schema.
    """

    lacking: tuple[str, ...] = ()
    beyond: tuple[str, ...] = ()
    same: bool = True


def _paths(schema: Raw, path: str) -> Iterator[str]:
    for value in schema.get("enum") or ():
        yield f"{path}={value}"
    for name, inner in (schema.get("properties") or {}).items():
        child = f"{path}.{name}" if path else name
        yield child
        yield from _paths(inner, child)
    for key, mark in (("items", "[]"), ("additionalProperties", "{}")):
        inner = schema.get(key)
        if isinstance(inner, dict):
            yield from _paths(inner, path + mark)


def _topmost(paths: set[str]) -> tuple[str, ...]:
    """Those of which no part stands there too: a field that is missing takes everything in it along."""
    parents = {path: [path[:end] for end in range(len(path)) if path[end] in ".[{="] for path in paths}
    return tuple(sorted(path for path in paths if paths.isdisjoint(parents[path])))


def _schema(obj: Raw) -> Raw:
    for version in (obj.get("spec") or {}).get("versions") or ():
        if version.get("name") == VERSION:
            return (version.get("schema") or {}).get("openAPIV3Schema") or {}
    return {}


def compare(definition: Definition, installed: Raw) -> Fit:
    """How the CustomResourceDefinition `installed` compares with `definition`."""
    own = manifest(definition)
    annotations = (installed.get("metadata") or {}).get("annotations") or {}
    if annotations.get(ANNOTATION_SCHEMA) == own["metadata"]["annotations"][ANNOTATION_SCHEMA]:
        return Fit()
    ours, theirs = set(_paths(_schema(own), "")), set(_paths(_schema(installed), ""))
    return Fit(_topmost(ours - theirs), _topmost(theirs - ours), same=False)


def _some(paths: tuple[str, ...]) -> str:
    more = f" and {len(paths) - _NAMED} more" if len(paths) > _NAMED else ""
    return ", ".join(paths[:_NAMED]) + more


class Definitions:
    """Looks at the definitions at start.

    Attributes:
        problem: Why this operator does not start yet, None when it may.
    """

    def __init__(self, kube: Kube, sleep: Callable[[float], Awaitable[None]] = asyncio.sleep) -> None:
        self._kube = kube
        self._sleep = sleep
        self.problem: str | None = "not looked at yet"

    async def wait(self) -> None:
        """Returns when every kind is served and no definition is older than this operator."""
        said: str | None = None
        while True:
            try:
                self.problem = await self._missing() or await self._older()
            except KubeError as error:
                self.problem = str(error)
            if self.problem is None:
                return
            if self.problem != said:
                _log.error(f"waiting for the CRDs of {API_VERSION}", problem=self.problem)
                said = self.problem
            await self._sleep(LOOK_SECONDS)

    async def _missing(self) -> str | None:
        remedy = "install the chart adjoin-crds"
        try:
            found = (await self._kube.get_path(f"/apis/{API_VERSION}")).get("resources") or ()
        except NotFound:
            return f"no kind of the group is served: {remedy}"
        served = {entry.get("name") for entry in found}
        missing = [plural for plural in PLURALS.values() if not {plural, f"{plural}/status"} <= served]
        return f"not served: {', '.join(missing)}: {remedy}" if missing else None

    async def _older(self) -> str | None:
        """What is wrong with a definition; where nothing is, what is odd about them is logged."""
        problems: list[str] = []
        odd: list[tuple[str, str, str]] = []
        for definition in DEFINITIONS:
            name = definition.name
            try:
                fit = compare(definition, await self._kube.get_path(f"{_PATH}/{name}"))
            except Forbidden as error:
                odd.append(
                    ("whether a CRD is of this version cannot be seen: upgrade the chart adjoin", name, str(error))
                )
                continue
            if fit.lacking:
                problems.append(f"{name} is older than this operator, it lacks {_some(fit.lacking)}")
            elif fit.beyond:
                text = (
                    "a CRD is newer than this operator, which refuses what it does not know: upgrade the chart adjoin"
                )
                odd.append((text, name, _some(fit.beyond)))
            elif not fit.same:
                text = (
                    "a CRD has other rules than this operator: upgrade the charts adjoin-crds and adjoin to one version"
                )
                odd.append((text, name, "its fields are the same"))
        if problems:
            return "; ".join(problems) + ": upgrade the chart adjoin-crds"
        for text, name, detail in odd:
            _log.warning(text, crd=name, detail=detail)
        return None
