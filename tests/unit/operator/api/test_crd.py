"""The YAML in `crds/` is what the models say, and what the models say has everything that a CRD should have."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from adjoin.api import crd
from adjoin.api.schema import Schema

CRDS = Path(__file__).parents[4] / "crds"
BY_KIND = {str(definition.kind): definition for definition in crd.DEFINITIONS}
MANIFESTS = {kind: crd.manifest(definition) for kind, definition in BY_KIND.items()}


def version(kind: str) -> dict[str, Any]:
    (found,) = MANIFESTS[kind]["spec"]["versions"]
    return dict(found)


def nodes(schema: Schema, path: str) -> Iterator[tuple[str, Schema]]:
    """Every schema node with its path."""
    yield path, schema
    for name, child in schema.get("properties", {}).items():
        yield from nodes(child, f"{path}.{name}")
    for key in ("items", "additionalProperties"):
        if key in schema:
            yield from nodes(schema[key], f"{path}[]")


def all_nodes(kind: str, *fields: str) -> Iterator[tuple[str, Schema]]:
    properties = version(kind)["schema"]["openAPIV3Schema"]["properties"]
    for field in fields:
        yield from nodes(properties[field], field)


def test_files_are_as_the_models_say() -> None:
    assert crd.out_of_date(CRDS) == [], "run `python -m adjoin.api.crd --write`"


def test_check_names_what_differs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert crd.main(["--write", "--directory", str(tmp_path)]) == 0
    assert crd.main(["--check", "--directory", str(tmp_path)]) == 0
    changed = tmp_path / "adjoin.dev_deviceclaims.yaml"
    changed.write_text(changed.read_text() + "\n# by hand\n")
    (tmp_path / "adjoin.dev_deviceshares.yaml").unlink()
    (tmp_path / "other.yaml").write_text("a: 1\n")
    assert crd.main(["--directory", str(tmp_path)]) == 1
    said = capsys.readouterr().err
    assert [line.split(" is not")[0].rsplit("/", 1)[-1] for line in said.splitlines()] == [
        "adjoin.dev_deviceclaims.yaml",
        "adjoin.dev_deviceshares.yaml",
        "other.yaml",
    ]


def test_files_have_no_anchors_and_parse_to_the_manifest() -> None:
    for definition in crd.DEFINITIONS:
        text = crd.render(definition)
        assert "&id" not in text
        assert yaml.safe_load(text) == crd.manifest(definition)


@pytest.mark.parametrize(
    ("kind", "short", "scope"),
    [
        pytest.param("DeviceClaim", "dclaim", "Namespaced", id="claims"),
        pytest.param("DevicePool", "dpool", "Cluster", id="pools"),
        pytest.param("DeviceShare", "dshare", "Cluster", id="shares"),
    ],
)
def test_names(kind: str, short: str, scope: str) -> None:
    spec = MANIFESTS[kind]["spec"]
    assert spec["names"]["shortNames"] == [short]
    assert spec["names"]["categories"] == ["adjoin"]
    assert spec["scope"] == scope
    assert version(kind)["subresources"]["status"] == {}
    assert version(kind)["additionalPrinterColumns"][-1]["name"] == "Age"


def test_claims_can_be_scaled_and_selected() -> None:
    assert version("DeviceClaim")["subresources"]["scale"] == {
        "specReplicasPath": ".spec.replicas",
        "statusReplicasPath": ".status.replicas",
        "labelSelectorPath": ".status.selector",
    }
    assert [field["jsonPath"] for field in version("DeviceClaim")["selectableFields"]] == [
        ".spec.poolRef.name",
        ".status.phase",
    ]


@pytest.mark.parametrize("kind", MANIFESTS)
def test_every_field_is_described_shortly(kind: str) -> None:
    for path, node in all_nodes(kind, "spec", "status"):
        for name, child in node.get("properties", {}).items():
            text = child.get("description", "")
            assert text.endswith("."), f"{path}.{name} has no description"
            assert len(text) <= 400, f"{path}.{name} says too much for kubectl explain"


@pytest.mark.parametrize("kind", MANIFESTS)
def test_every_list_and_number_is_bounded_and_every_list_says_its_type(kind: str) -> None:
    for path, node in all_nodes(kind, "spec", "status"):
        if node.get("type") == "array":
            assert node["x-kubernetes-list-type"] in ("atomic", "map", "set"), path
            assert "maxItems" in node, path
            for key in node.get("x-kubernetes-list-map-keys", ()):
                assert key in node["items"]["required"], path
        if node.get("type") == "integer":
            assert "minimum" in node, path
        for mark in node.get("x-kubernetes-validations", ()):
            assert mark.get("message") or mark.get("messageExpression"), path


@pytest.mark.parametrize("kind", MANIFESTS)
def test_every_field_tells_its_default_or_what_its_absence_means(kind: str) -> None:
    for path, node in all_nodes(kind, "spec"):
        for name, child in node.get("properties", {}).items():
            text = child["description"]
            if "default" not in child:
                assert name in node.get("required", ()) or "bsent" in text, f"{path}.{name}: {text}"
            elif child.get("type") != "object":
                literal = str(child["default"])
                literal = literal.lower() if child.get("type") == "boolean" else literal
                assert f"Default: {literal}" in text, f"{path}.{name}: {text}"


def test_conditions_merge_by_type_and_allocation_is_one_value() -> None:
    for kind in MANIFESTS:
        status = version(kind)["schema"]["openAPIV3Schema"]["properties"]["status"]["properties"]
        assert status["conditions"]["x-kubernetes-list-map-keys"] == ["type"]
    claim = version("DeviceClaim")["schema"]["openAPIV3Schema"]["properties"]["status"]["properties"]
    assert claim["allocation"]["x-kubernetes-map-type"] == "atomic"


def test_scaling_tools_own_replicas_so_the_server_fills_in_none() -> None:
    spec = version("DeviceClaim")["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]
    assert "default" not in spec["replicas"]
    line = spec["affinity"]["items"]["properties"]
    assert "default" not in line["policy"]
    assert "default" not in line["over"]
    assert "default" not in spec["requests"]["items"]["properties"]["count"]


def test_schema_version_follows_the_schema() -> None:
    versions = {manifest["metadata"]["annotations"]["adjoin.dev/schema"] for manifest in MANIFESTS.values()}
    assert len(versions) == len(MANIFESTS)
    assert all(len(value) == 16 for value in versions)
