"""The files of `examples/hooks` on a real API server: accepted whole, and with the rights that the README tells."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import yaml
from tests.controlplane import ApiFailure
from tests.support import hooks
from tests.support.api_objects import Manifest
from tests.support.crd_server import Server, crd_server

pytestmark = pytest.mark.cluster

NAMES = (*hooks.INIT, *hooks.CLEANUP)
WITH_CAPABILITY = {"gpu-errors", "gpudirect-bandwidth", "mig-teardown"}


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    """With a namespace for each level of Pod Security."""
    with crd_server() as made:
        for level in ("restricted", "baseline", "privileged"):
            labels = {"pod-security.kubernetes.io/enforce": level}
            namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": level, "labels": labels}}
            account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}}
            made.plane.request("POST", "/api/v1/namespaces", namespace)
            made.plane.request("POST", f"/api/v1/namespaces/{level}/serviceaccounts", account)
        yield made


@pytest.mark.parametrize("file", ["pool.yaml", "claims.yaml"])
def test_the_server_keeps_pool_and_claim_as_they_are_written(server: Server, file: str) -> None:
    """Nothing is unknown to the CRDs, so nothing of it is dropped."""
    written = yaml.safe_load((hooks.FOLDER / file).read_text())
    kept = server.create(written, "?dryRun=All&fieldValidation=Strict")
    assert kept["spec"]["lifecycle"].items() >= written["spec"]["lifecycle"].items()


def test_the_server_takes_the_scripts(server: Server) -> None:
    scripts = yaml.safe_load((hooks.FOLDER / "scripts.yaml").read_text())
    scripts["metadata"]["namespace"] = "restricted"
    made = server.plane.request("POST", "/api/v1/namespaces/restricted/configmaps", scripts)
    assert made["data"] == scripts["data"]


def allowed(server: Server, level: str, name: str) -> bool:
    """Whether the template's pod may be made in a namespace of that level. Raises for any other refusal."""
    template = yaml.safe_load((hooks.ENTRIES / f"{name}.yaml").read_text())["template"]
    pod: Manifest = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": template["spec"]}
    try:
        server.plane.request("POST", f"/api/v1/namespaces/{level}/pods?dryRun=All&fieldValidation=Strict", pod)
    except ApiFailure as failure:
        if "violates PodSecurity" not in str(failure):
            raise
        return False
    return True


@pytest.mark.parametrize("name", NAMES)
def test_a_template_needs_no_more_than_the_readme_says(server: Server, name: str) -> None:
    levels = [level for level in ("restricted", "baseline", "privileged") if allowed(server, level, name)]
    assert levels == (["privileged"] if name in WITH_CAPABILITY else ["restricted", "baseline", "privileged"])
