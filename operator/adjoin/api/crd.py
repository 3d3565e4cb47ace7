"""The CustomResourceDefinitions of the three kinds, as values and as the YAML files in `crds/`.

`python -m adjoin.api.crd --write` makes the files, `--check` (the default) says whether they are as the models say.
Nothing else in the project writes them.
"""

import argparse
import hashlib
import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import yaml
from pydantic import BaseModel

from adjoin.api.claim import DeviceClaim
from adjoin.api.names import ANNOTATION_SCHEMA, GROUP, PLURALS, VERSION, Kind
from adjoin.api.pool import DevicePool
from adjoin.api.schema import structural_schema
from adjoin.api.share import DeviceShare

Column = dict[str, Any]

_HEADER: Final = "# Made from the models by `python -m adjoin.api.crd --write`; do not edit.\n"


def _column(name: str, path: str, kind: str = "string", *, wide: bool = False, about: str = "") -> Column:
    column: Column = {"name": name, "type": kind, "jsonPath": path}
    if about:
        column["description"] = about
    if wide:
        column["priority"] = 1
    return column


_AGE: Final = _column("Age", ".metadata.creationTimestamp", "date")
_READY: Final = _column("Ready", '.status.conditions[?(@.type=="Ready")].status')


@dataclass(frozen=True, slots=True)
class Definition:
    """What a CRD says beside its schema."""

    kind: Kind
    model: type[BaseModel]
    short_name: str
    scope: str
    columns: tuple[Column, ...]
    selectable: tuple[str, ...] = ()
    scale: bool = False

    @property
    def name(self) -> str:
        return f"{PLURALS[self.kind]}.{GROUP}"

    @property
    def file_name(self) -> str:
        return f"{GROUP}_{PLURALS[self.kind]}.yaml"


DEFINITIONS: Final[tuple[Definition, ...]] = (
    Definition(
        Kind.DEVICE_POOL,
        DevicePool,
        "dpool",
        "Cluster",
        (
            _READY,
            _column("Free", ".status.summary", about="Free and all devices by name."),
            _column("Strategy", ".spec.placement.strategy", wide=True),
            _column("Delivery", ".spec.delivery.mode", wide=True),
            _column("Guard", ".spec.delivery.guard", wide=True),
            _AGE,
        ),
    ),
    Definition(
        Kind.DEVICE_SHARE,
        DeviceShare,
        "dshare",
        "Cluster",
        (
            _column("Pool", ".spec.poolRef.name"),
            _column("Device", ".spec.device"),
            _column("Mode", ".spec.mode"),
            _READY,
            _column("Units", ".status.units", "integer"),
            _column("Free", ".status.free", "integer"),
            _column("Isolation", ".status.isolation", wide=True),
            _AGE,
        ),
        selectable=(".spec.poolRef.name",),
    ),
    Definition(
        Kind.DEVICE_CLAIM,
        DeviceClaim,
        "dclaim",
        "Namespaced",
        (
            _column("Phase", ".status.phase"),
            _column("Pool", ".spec.poolRef.name"),
            _column("Ready", ".status.readyReplicas", "integer", about="Replicas whose devices are ready."),
            _column("Replicas", ".status.replicas", "integer", about="Replicas that hold devices."),
            _column("Reason", ".status.reasons[0].code", about="The most actionable reason why something is missing."),
            _column("Node", ".status.allocation.replicas[0].node", wide=True, about="Node of the first replica."),
            _column("Wanted", ".spec.replicas", "integer", wide=True, about="Replicas asked for; empty: 1."),
            _column("Priority", ".spec.priority", "integer", wide=True),
            _AGE,
        ),
        selectable=(".spec.poolRef.name", ".status.phase"),
        scale=True,
    ),
)


def manifest(definition: Definition) -> dict[str, Any]:
    """The CustomResourceDefinition as the API server takes it."""
    schema = _object_schema(definition.model)
    subresources: dict[str, Any] = {"status": {}}
    if definition.scale:
        subresources["scale"] = {
            "specReplicasPath": ".spec.replicas",
            "statusReplicasPath": ".status.replicas",
            "labelSelectorPath": ".status.selector",
        }
    version: dict[str, Any] = {
        "name": VERSION,
        "served": True,
        "storage": True,
        "additionalPrinterColumns": list(definition.columns),
        "subresources": subresources,
        "schema": {"openAPIV3Schema": schema},
    }
    if definition.selectable:
        version["selectableFields"] = [{"jsonPath": path} for path in definition.selectable]
    plural = PLURALS[definition.kind]
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": definition.name, "annotations": {ANNOTATION_SCHEMA: schema_version(definition)}},
        "spec": {
            "group": GROUP,
            "names": {
                "kind": str(definition.kind),
                "listKind": f"{definition.kind}List",
                "plural": plural,
                "singular": str(definition.kind).lower(),
                "shortNames": [definition.short_name],
                "categories": ["adjoin"],
            },
            "scope": definition.scope,
            "versions": [version],
        },
    }


def schema_version(definition: Definition) -> str:
    """Fingerprint of the schema; an operator that finds another one on the server does not fit the CRD."""
    text = json.dumps(_object_schema(definition.model), sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def render(definition: Definition) -> str:
    """The text of the file in `crds/`."""
    return _HEADER + yaml.dump(manifest(definition), Dumper=_Dumper, sort_keys=False, width=120, allow_unicode=True)


def out_of_date(directory: Path) -> list[str]:
    """Names of files that are missing, differ from the models, or do not belong there."""
    wanted = {definition.file_name: render(definition) for definition in DEFINITIONS}
    found = {path.name: path.read_text(encoding="utf-8") for path in directory.glob("*.yaml")}
    return sorted(name for name in wanted.keys() | found.keys() if wanted.get(name) != found.get(name))


def _object_schema(model: type[BaseModel]) -> dict[str, Any]:
    """The schema of the whole object: apiVersion, kind and metadata are the API server's own."""
    schema = dict(structural_schema(model))
    schema["properties"] = {
        "apiVersion": {"type": "string", "description": "Always adjoin.dev/v1alpha1."},
        "kind": {"type": "string", "description": f"Always {model.__name__}."},
        "metadata": {"type": "object"},
        "spec": schema["properties"]["spec"],
        "status": schema["properties"]["status"],
    }
    schema["required"] = ["spec"]
    return schema


class _Dumper(yaml.SafeDumper):
    """Writes shared parts out each time (no anchors) and indents lists, as people write manifests."""

    def ignore_aliases(self, data: Any) -> bool:
        return True

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:
        super().increase_indent(flow, False)


def _default_directory() -> Path:
    return Path(__file__).resolve().parents[3] / "crds"


def main(arguments: Sequence[str] | None = None) -> int:
    """Write or check the files; exit 1 when they are not as the models say."""
    parser = argparse.ArgumentParser(prog="python -m adjoin.api.crd", description=main.__doc__)
    action = parser.add_mutually_exclusive_group()
    action.add_argument("--check", action="store_true", help="say which files differ from the models (the default)")
    action.add_argument("--write", action="store_true", help="write the files")
    parser.add_argument("--directory", type=Path, default=_default_directory(), help="where the files are")
    options = parser.parse_args(arguments)
    directory: Path = options.directory
    if options.write:
        directory.mkdir(parents=True, exist_ok=True)
        for definition in DEFINITIONS:
            (directory / definition.file_name).write_text(render(definition), encoding="utf-8")
    stale = out_of_date(directory)
    for name in stale:
        print(f"{directory / name} is not as the models say; run `python -m adjoin.api.crd --write`", file=sys.stderr)
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main())
