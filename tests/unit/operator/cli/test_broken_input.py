"""Input that is broken in ways nobody means: told in one line with its place, never by a traceback."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.support.planning import run_plan

POOL = """
apiVersion: adjoin.dev/v1alpha1
kind: DevicePool
metadata: {name: p}
spec:
  devices:
  - {name: gpu, type: GPU, source: {static: {nodes: [{name: n1, devices: [{name: g0}]}]}}}
---
apiVersion: adjoin.dev/v1alpha1
kind: DeviceClaim
metadata: {name: c, namespace: default, uid: u1}
spec: {poolRef: {name: p}, requests: [{name: gpu}]}
status:
  phase: Ready
  allocation:
    replicas:
    - {index: 0, node: n1, state: Ready, locality: LOCALITY, devices: DEVICES}
"""
HELD = "[{request: gpu, driver: adjoin.dev, pool: n1, device: g0}]"


@pytest.mark.parametrize(
    ("text", "word"),
    [
        pytest.param(
            POOL.replace("LOCALITY", "{}").replace("DEVICES", HELD) + "    - {index: 0, node: n1, devices: []}\n",
            "DeviceClaim default/c: status.allocation.replicas[1].index: 0: is the index of "
            "status.allocation.replicas[0] too",
            id="an index that is listed twice",
        ),
        pytest.param(
            POOL.replace("LOCALITY", "{}").replace("DEVICES", f"{HELD[:-1]}, {HELD[1:]}"),
            "status.allocation.replicas[0].devices[1]: adjoin.dev/n1/g0: is the device of "
            "status.allocation.replicas[0].devices[0] too",
            id="a device that one replica lists twice",
        ),
        pytest.param(
            POOL.replace("LOCALITY", "{}").replace("DEVICES", HELD)
            + f"    - {{index: 1, node: n1, devices: {HELD}}}\n",
            "status.allocation.replicas[1].devices[0]: adjoin.dev/n1/g0: is the device of "
            "status.allocation.replicas[0].devices[0] too",
            id="a device in two replicas",
        ),
        pytest.param("&a [*a]", "nested too deeply", id="a list that holds itself"),
        pytest.param("a: !!bool maybe", "maybe", id="a word that is no value of its tag"),
        pytest.param(POOL.replace("LOCALITY", "{}").replace("DEVICES", "{}"), "devices", id="devices that are no list"),
    ],
)
def test_broken_input_is_exit_2_with_its_place(tmp_path: Path, text: str, word: str) -> None:
    (tmp_path / "broken.yaml").write_text(text)
    ran = run_plan("-f", str(tmp_path / "broken.yaml"))
    assert ran.status == 2
    assert word in ran.err
    assert "Traceback" not in ran.err


@pytest.mark.parametrize("locality", ["null", "{gpu-gpu: null}"])
def test_nulls_in_a_status_are_absent(tmp_path: Path, locality: str) -> None:
    """As for the API server."""
    (tmp_path / "status.yaml").write_text(POOL.replace("LOCALITY", locality).replace("DEVICES", HELD))
    assert run_plan("-f", str(tmp_path / "status.yaml")).status == 0


def test_a_bare_date_is_no_time(tmp_path: Path) -> None:
    (tmp_path / "pool.yaml").write_text(POOL.split("---")[0])
    ran = run_plan("-f", str(tmp_path / "pool.yaml"), "--now", "2026-01-01")
    assert ran.status == 2
    assert "--now 2026-01-01" in ran.err


LAUGHS = "a: &a [x, x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{name}: &{name} [{', '.join([f'*{before}'] * 10)}]\n" for before, name in zip("abcdefgh", "bcdefghi", strict=True)
)


@pytest.mark.parametrize("kind", ["ConfigMap", "DeviceClaim"])
def test_aliases_that_repeat_without_measure_are_refused(tmp_path: Path, kind: str) -> None:
    """A few lines that stand for a thousand million values."""
    group = "v1" if kind == "ConfigMap" else "adjoin.dev/v1alpha1"
    (tmp_path / "laughs.yaml").write_text(f"{LAUGHS}apiVersion: {group}\nkind: {kind}\nmetadata: {{name: m}}\n")
    ran = run_plan("-f", str(tmp_path / "laughs.yaml"))
    assert ran.status == 2
    assert "laughs.yaml: aliases (*name) repeat so much" in ran.err


def test_aliases_in_measure_are_read(tmp_path: Path) -> None:
    text = (
        POOL.split("---")[0]
        .replace("n1, devices: [", "n1, devices: &d [")
        .replace("]}]}}}", "]}, {name: n2, devices: *d}]}}}")
    )
    (tmp_path / "pool.yaml").write_text(text)
    ran = run_plan("-f", str(tmp_path / "pool.yaml"), "-o", "json")
    assert ran.counts("p", "gpu")["capacity"] == 2


@pytest.mark.parametrize(
    ("devices", "words"),
    [
        pytest.param("[5]", "spec.devices[0]: expected an object, found 5", id="a number"),
        pytest.param("[null]", "spec.devices[0]: expected an object, found nothing", id="nothing"),
        pytest.param("{a: 1}", 'spec.devices: expected a list, found {"a": 1}', id="no list"),
        pytest.param("[{name: 5}]", "spec.devices[0].name: expected text, found 5", id="a name that is a number"),
        pytest.param("[{}]", "spec.devices[0].name: expected text, found nothing", id="no name"),
        pytest.param(
            "[{name: g, taints: [5]}]", "spec.devices[0].taints[0]: expected an object, found 5", id="a taint"
        ),
    ],
)
def test_a_slice_of_another_shape_is_left_out_with_the_field_that_is_wrong(
    tmp_path: Path, devices: str, words: str
) -> None:
    pool = "{name: n1, generation: 1, resourceSliceCount: 1}"
    spec = f"{{driver: d.x, nodeName: n1, pool: {pool}, devices: {devices}}}"
    text = f"apiVersion: resource.k8s.io/v1\nkind: ResourceSlice\nmetadata: {{name: s}}\nspec: {spec}\n"
    (tmp_path / "slice.yaml").write_text(text)
    ran = run_plan("-f", str(tmp_path / "slice.yaml"))
    assert ran.status == 0
    assert f"ResourceSlice s is left out: {words}" in ran.err
