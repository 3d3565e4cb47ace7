"""`release-quarantine`, and how commands show what is in quarantine."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.support.livecluster import cluster
from tests.support.objects import deviceclaim, devicepool, node, resourceslice

from adjoin.cli.documents import Document
from adjoin.cli.main import main
from adjoin.cli.objects import read_input
from adjoin.cli.plan import make_plan
from adjoin.intents import Kind

Obj = dict[str, Any]
OPEN = {"guard": "None"}


def entry(device: str, node_name: str = "n1", reason: str = "NeedsReset", **fields: Any) -> Obj:
    return {
        "driver": "gpu.nvidia.com",
        "pool": node_name,
        "device": device,
        "id": f"GPU-{node_name}-{device.partition('-')[2]}",
        "owner": "adjoin.dev",
        "reason": reason,
        "message": "hook scrub failed: process 7 holds it",
        "exit": "kubectl adjoin release-quarantine",
        "name": "gpu",
        "node": node_name,
        **fields,
    }


def pools(*entries: Obj, **meta: Any) -> Obj:
    return devicepool(delivery=OPEN, status={"quarantined": list(entries)}, **meta)


def asked(api: Any) -> list[Obj]:
    pool = api.get(Kind.DEVICE_POOL, "", "training")
    return json.loads(pool["metadata"]["annotations"]["adjoin.dev/release-quarantine"])


@pytest.mark.parametrize(
    "named",
    ["n1/gpu-0", "gpu.nvidia.com/n1/gpu-0", "GPU-n1-0"],
    ids=["pool and name", "driver, pool and name", "uuid"],
)
def test_it_annotates_the_pool_that_has_the_device(
    named: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    earlier = json.dumps([{"device": "n1/gpu-1", "reason": "reseated"}])
    pool = pools(entry("gpu-0"), entry("gpu-1"), annotations={"adjoin.dev/release-quarantine": earlier})
    with cluster([pool], tmp_path) as (api, path):
        assert main(["release-quarantine", named, "--reason", "power cycled", "--kubeconfig", path]) == 0
        assert asked(api) == [
            {"device": "n1/gpu-1", "reason": "reseated"},
            {"device": "gpu.nvidia.com/n1/gpu-0", "reason": "power cycled"},
        ]
    assert "DevicePool training" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        pytest.param(["n1/gpu-9", "--reason", "x"], "these are: gpu.nvidia.com/n1/gpu-0 (NeedsReset)", id="unknown"),
        pytest.param(["gpu-0", "--reason", "x"], "gpu-0 means several devices", id="a name that several have"),
        pytest.param(["n1/gpu-0", "--reason", " "], "--reason is empty", id="an empty reason"),
        pytest.param(["n1/gpu-0"], "required: --reason", id="no reason"),
    ],
)
def test_what_it_refuses(arguments: list[str], words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pool = pools(entry("gpu-0"), entry("gpu-0", "n2"))
    with cluster([pool], tmp_path) as (api, path):
        assert main(["release-quarantine", *arguments, "--kubeconfig", path]) == 2
        assert "annotations" not in api.get(Kind.DEVICE_POOL, "", "training")["metadata"]
    assert words in capsys.readouterr().err


def test_without_anything_in_quarantine_it_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with cluster([pools()], tmp_path) as (_, path):
        assert main(["release-quarantine", "n1/gpu-0", "--reason", "x", "--kubeconfig", path]) == 2
    assert "neither is any other device" in capsys.readouterr().err


OBJECTS = [
    pools(entry("gpu-0"), entry("gpu-1", reason="IdleClean")),
    node("n1"),
    resourceslice("n1", devices=4),
    deviceclaim("fits", requests={"gpu": 2}, creationTimestamp="2026-11-30T07:00:00Z"),
    deviceclaim("waits", requests={"gpu": 2}),
]


def test_plan_gives_nobody_what_is_in_quarantine_and_says_so_in_numbers() -> None:
    given = read_input([Document(f"object {place}", obj) for place, obj in enumerate(OBJECTS)])
    shown = make_plan(given).shown
    fits, waits = shown["claims"]
    assert [each["device"] for each in fits["replicas"][0]["devices"]] == ["gpu-2", "gpu-3"]
    (reason,) = [each for each in waits["reasons"] if each["code"] == "Quarantined"]
    assert reason["nodes"] == 1
    assert reason["message"].startswith("2 quarantined where it would fit otherwise: ")
    assert "NeedsReset: hook scrub failed: process 7 holds it; until kubectl adjoin release-q" in reason["message"]
    assert shown["pools"][0]["devices"]["gpu"] == {
        "capacity": 4,
        "free": 0,
        "allocated": 2,
        "reserved": 0,
        "releasing": 0,
        "unhealthy": 2,
        "missing": 0,
    }


@pytest.mark.parametrize("command", [["topology", "n1"], ["explain", "waits"]], ids=["topology", "explain"])
def test_commands_show_reason_and_exit(
    command: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "400")
    path = tmp_path / "objects.json"
    path.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": OBJECTS}))
    main([*command, "-f", str(path)])
    out = " ".join(capsys.readouterr().out.split())
    assert "NeedsReset: hook scrub failed: process 7 holds it; until kubectl adjoin release-quarantine" in out
