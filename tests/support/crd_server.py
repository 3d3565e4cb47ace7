"""An API server that has our CRDs and nothing else of ours: no webhook, no operator, no controllers.

Comes in: the files of `crds/`. Goes out: a `Server` to create, change and read objects with; an `ApiFailure` is what
the API server says by the CRDs alone.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import yaml
from tests.controlplane import ApiFailure, ControlPlane, Options
from tests.controlplane.client import APPLY_PATCH, MERGE_PATCH
from tests.support.api_objects import Manifest
from tests.support.waiting import eventually

from adjoin.api.crd import DEFINITIONS
from adjoin.api.names import PLURALS, Kind

CRDS = Path(__file__).parents[2] / "crds"
CRD_PATH = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


class Server:
    """An API server with our CRDs and nothing else of ours."""

    def __init__(self, plane: ControlPlane) -> None:
        self.plane = plane
        self._numbers = itertools.count()

    def fresh(self, obj: Manifest) -> Manifest:
        """The object under a name that nobody else has."""
        return obj | {"metadata": obj["metadata"] | {"name": f"{obj['metadata']['name']}-{next(self._numbers)}"}}

    def path(self, obj: Manifest, *, named: bool = True, subresource: str = "") -> str:
        space = "/namespaces/default" if obj["kind"] == Kind.DEVICE_CLAIM else ""
        name = f"/{obj['metadata']['name']}" if named else ""
        tail = f"/{subresource}" if subresource else ""
        return f"/apis/adjoin.dev/v1alpha1{space}/{PLURALS[Kind(obj['kind'])]}{name}{tail}"

    def create(self, obj: Manifest, query: str = "") -> Manifest:
        made: Manifest = self.plane.request("POST", self.path(obj, named=False) + query, obj)
        return made

    def get(self, obj: Manifest) -> Manifest:
        found: Manifest = self.plane.request("GET", self.path(obj))
        return found

    def patch(self, obj: Manifest, change: Manifest, subresource: str = "") -> Manifest:
        path = self.path(obj, subresource=subresource)
        done: Manifest = self.plane.request("PATCH", path, change, content_type=MERGE_PATCH)
        return done

    def apply(self, obj: Manifest, manager: str, *, subresource: str = "", force: bool = False) -> Manifest:
        path = f"{self.path(obj, subresource=subresource)}?fieldManager={manager}&force={str(force).lower()}"
        done: Manifest = self.plane.request("PATCH", path, obj, content_type=APPLY_PATCH)
        return done

    def refusal(self, obj: Manifest, query: str = "?dryRun=All") -> str | None:
        """What the server says against creating the object, or None."""
        try:
            self.create(obj, query)
        except ApiFailure as failure:
            return str(failure.body["message"])
        return None

    def kubectl(self, *arguments: str, stdin: str | None = None) -> str:
        return self.plane.kubectl(*arguments, stdin=stdin).stdout


@contextmanager
def crd_server() -> Iterator[Server]:
    """The server, for as long as the block lasts."""
    with ControlPlane(Options(controller_manager=False, scheduler=False, kwok=False), name="crds") as plane:
        for file in sorted(CRDS.glob("*.yaml")):
            plane.request("POST", CRD_PATH, yaml.safe_load(file.read_text()))
        for definition in DEFINITIONS:
            look = partial(plane.request, "GET", f"{CRD_PATH}/{definition.name}")
            eventually(look, _established, what=f"{definition.name} is served")
        yield Server(plane)


def _established(crd: Manifest) -> bool:
    conditions = crd.get("status", {}).get("conditions", [])
    return any(each["type"] == "Established" and each["status"] == "True" for each in conditions)
