"""The scripts of `examples/hooks` that make parts of devices, run as a hook's container runs them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.support.hook_machine import Machine, Obj, gpu, gpu_device, nic_device

GI = 1 << 30
LAYOUT = [
    {"profile": "1g.10gb", "start": 0, "size": 1},
    {"profile": "2g.20gb", "start": 2, "size": 2},
    {"profile": "3g.40gb", "start": 4, "size": 4},
]


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    """Tools, and one card on which MIG is off."""
    made = Machine(tmp_path)
    for tool in ("nvidia-smi", "nvidia-cuda-mps-control"):
        made.tool(tool)
    made.state(gpus=[gpu(1, facts={"mig_mode/current_mig": "Disabled"})], log=[])
    return made


def mig(profile: str = "", start: int = 0, **more: Any) -> Obj:
    part = {"part": "gpu-1", "profile": profile, "start": start} if profile else {}
    return gpu_device(1, share={"name": "s", "mode": "Partitioned", **part, **more})


def reported(machine: Machine) -> Obj:
    """What the hook told of its parts."""
    found: Obj = json.loads((machine.folder / "termination-log").read_text()).get("parts", {})
    return found


def places(machine: Machine) -> list[tuple[str, int]]:
    (card,) = machine.now()["gpus"]
    return sorted((profile, start) for profile, start, _ in card.get("places", {}).values())


def test_a_partition_is_made_at_its_place_and_told_by_its_uuid(machine: Machine) -> None:
    ended = machine.run("mig_partition", [mig("1g.10gb", 3)])
    assert (ended.status, ended.failed) == (0, []), ended.message
    assert places(machine) == [("1g.10gb", 3)]
    assert reported(machine) == {"gpu-1": {"id": "MIG-GPU-1-1", "profile": "1g.10gb", "start": 3}}


def test_c7_what_is_there_is_taken_and_half_of_it_completed(machine: Machine) -> None:
    """The run before died after the GPU instance, before its compute instance."""
    half = {"instances": ["5"], "places": {"5": ["1g.10gb", 3, 1]}}
    machine.state(gpus=[gpu(1, **half)], log=[])
    for _ in range(2):
        assert machine.run("mig_partition", [mig("1g.10gb", 3)]).status == 0
        assert places(machine) == [("1g.10gb", 3)]
        assert reported(machine)["gpu-1"]["id"] == "MIG-GPU-1-5"


def test_c4_only_the_part_that_is_meant_is_taken_apart(machine: Machine) -> None:
    for start in (0, 3):
        machine.run("mig_partition", [mig("1g.10gb", start)])
    assert machine.run("mig_partition", [mig("1g.10gb", 0)], "cleanup").status == 0
    assert places(machine) == [("1g.10gb", 3)]
    assert machine.run("mig_teardown", [mig("1g.10gb", 3)], "cleanup").status == 0
    assert places(machine) == [("1g.10gb", 3)], "a teardown of whole cards leaves parts alone"


def test_a_layout_is_made_with_its_card_and_stays_when_a_part_is_given_back(machine: Machine) -> None:
    assert machine.run("mig_partition", [mig(layout=LAYOUT)]).status == 0
    assert len(places(machine)) == 3
    assert machine.run("mig_partition", [mig("1g.10gb", 0, layout=LAYOUT)], "cleanup").status == 0
    assert len(places(machine)) == 3
    assert machine.run("mig_partition", [mig(layout=LAYOUT)], "cleanup").status == 0
    (card,) = machine.now()["gpus"]
    assert (card["instances"], card["facts"]["mig_mode/current_mig"]) == ([], "Disabled")


def test_b12_another_layout_leaves_what_both_have(machine: Machine) -> None:
    machine.run("mig_partition", [mig(layout=LAYOUT)])
    before = machine.now()["gpus"][0]["places"]
    kept = next(name for name, place in before.items() if place[0] == "1g.10gb")
    other = [{"profile": "1g.10gb", "start": start, "size": 1} for start in range(7)]
    assert machine.run("mig_partition", [mig(layout=other)]).status == 0
    assert places(machine) == [("1g.10gb", start) for start in range(7)]
    assert machine.now()["gpus"][0]["places"][kept] == before[kept], "it was never taken apart"


@pytest.mark.parametrize(
    ("card", "says"),
    [
        pytest.param({"refuses": True}, "was not made", id="the driver refuses"),
        pytest.param({"lies": True}, "was not made", id="success, and nothing there"),
        pytest.param({"pending": True, "facts": {"mig_mode/current_mig": "Disabled"}}, "MIG is Disabled", id="a reset"),
    ],
)
def test_b6_what_cannot_be_read_back_was_not_made(machine: Machine, card: Obj, says: str) -> None:
    machine.state(gpus=[gpu(1, **card)], log=[])
    ended = machine.run("mig_partition", [mig("1g.10gb", 3)])
    assert (ended.status, ended.failed) == (1, ["gpu-1"])
    assert says in ended.message
    assert reported(machine) == {}


def test_c36_a_partition_that_is_held_is_left_and_its_holder_named(machine: Machine) -> None:
    holder = {"pid": 4711, "name": "dcgm", "gi": "1", "ci": "0"}
    machine.run("mig_partition", [mig("1g.10gb", 3)])
    (card,) = machine.now()["gpus"]
    machine.state(gpus=[{**card, "stuck": "1", "processes": [holder]}], log=[])
    ended = machine.run("mig_partition", [mig("1g.10gb", 3)], "cleanup")
    assert (ended.status, ended.failed) == (1, ["gpu-1"])
    assert "1g.10gb at 3 is left" in ended.message or "4711" in ended.message


def test_another_mode_is_none_of_its_business(machine: Machine) -> None:
    for script in ("mig_partition", "mps_limits"):
        ended = machine.run(script, [gpu_device(1, share={"name": "s", "mode": "Fractional", "part": "gpu-1"})])
        assert (ended.status, ended.failed) == (2, None)


# MPS


def client(key: str = "gpu-1", **limits: Any) -> Obj:
    return gpu_device(1, share={"name": "s", "mode": "MPS", "part": key, **limits})


def daemon(machine: Machine) -> Path:
    pipe = machine.folder / "mps" / "GPU-1"
    pipe.mkdir(parents=True, exist_ok=True)
    machine.env["ADJOIN_PARAMETER_MPS_PIPES"] = str(machine.folder / "mps")
    return pipe


def test_limits_of_mps_are_set_and_read_back(machine: Machine) -> None:
    pipe = daemon(machine)
    ended = machine.run("mps_limits", [client(memory=20 * GI, compute=250)])
    assert ended.status == 0, ended.message
    assert reported(machine) == {"gpu-1": {"memory": 20 * GI, "compute": 250, "pipe": str(pipe)}}
    assert json.loads((pipe / "limits.json").read_text()) == {"percent": 25.0, "memory": "20480M"}


def test_a_daemon_has_the_largest_limit_of_its_parts_and_each_is_told_its_own(machine: Machine) -> None:
    pipe = daemon(machine)
    machine.run("mps_limits", [client(memory=20 * GI, compute=250)])
    machine.run("mps_limits", [client("other", memory=10 * GI, compute=500)])
    assert reported(machine)["other"]["memory"] == 10 * GI
    assert json.loads((pipe / "limits.json").read_text()) == {"percent": 50.0, "memory": "20480M"}
    machine.run("mps_limits", [client(memory=20 * GI, compute=250)], "cleanup")
    assert json.loads((pipe / "limits.json").read_text())["memory"] == "10240M"


@pytest.mark.parametrize("sign", ["dead", "ignores"])
def test_b6_a_daemon_that_sets_nothing_is_no_limit(machine: Machine, sign: str) -> None:
    pipe = daemon(machine)
    (pipe / "limits.json").write_text(json.dumps({"percent": 10.0, "memory": "512M"}))
    (pipe / sign).touch()
    ended = machine.run("mps_limits", [client(memory=20 * GI, compute=250)])
    told = reported(machine).get("gpu-1", {})
    assert ended.status == 1 or (told["memory"], told["compute"]) == (512 << 20, 100), "Adjoin sees the difference"


# Functions


def nic(machine: Machine, most: int = 8, now: int = 0) -> Path:
    """A NIC in sysfs, whose kernel makes functions when their number is written."""
    folder = machine.folder / "sys" / "bus" / "pci" / "devices" / "0000:01:01.0"
    folder.mkdir(parents=True)
    (folder / "sriov_totalvfs").write_text(f"{most}\n")
    (folder / "sriov_numvfs").write_text(f"{now}\n")
    for place in range(most):
        (folder / f"virtfn{place}").symlink_to(f"../0000:01:02.{place}")
    return folder


def function(place: int | None = None, of: int = 4) -> Obj:
    part = {} if place is None else {"part": "nic-1", "vf": place}
    return nic_device(1, share={"name": "s", "mode": "VirtualFunctions", "of": of, **part})


def test_functions_are_made_and_the_claims_is_told_by_its_address(machine: Machine) -> None:
    folder = nic(machine)
    ended = machine.run("sriov_vf", [function(2)])
    assert ended.status == 0, ended.message
    assert (folder / "sriov_numvfs").read_text().strip() == "4"
    assert reported(machine) == {"nic-1": {"id": "0000:01:02.2", "vf": 2}}


def test_c4_giving_back_a_function_changes_nothing_for_the_others(machine: Machine) -> None:
    folder = nic(machine, now=4)
    assert machine.run("sriov_vf", [function(2)], "cleanup").status == 0
    assert (folder / "sriov_numvfs").read_text().strip() == "4"
    assert machine.run("sriov_vf", [function()], "cleanup").status == 0
    assert (folder / "sriov_numvfs").read_text().strip() == "0"


def test_a_number_that_others_use_is_not_changed_for_a_part(machine: Machine) -> None:
    folder = nic(machine, now=2)
    ended = machine.run("sriov_vf", [function(2)])
    assert (ended.status, ended.failed) == (1, ["nic-1"])
    assert (folder / "sriov_numvfs").read_text().strip() == "2"


@pytest.mark.parametrize(
    ("script", "devices"),
    [
        ("mig_partition", [mig("1g.10gb", 3)]),
        ("mig_partition", [mig(layout=LAYOUT)]),
        ("mps_limits", [client(memory=GI)]),
        ("sriov_vf", [function(2)]),
        ("node_config", [mig("1g.10gb", 3)]),
    ],
)
@pytest.mark.parametrize("phase", ["init", "cleanup"])
def test_a_simulation_calls_nothing_and_reports_as_a_run_does(
    tmp_path: Path, script: str, devices: list[Obj], phase: str
) -> None:
    machine = Machine(tmp_path)
    ended = machine.run(script, devices, phase, args=("--simulate",))
    assert (ended.status, ended.failed) == (0, []), ended.message
    expected = phase == "init" and script != "node_config" and "part" in devices[0]["share"]
    assert bool(reported(machine)) is expected
    name = devices[0]["device"]
    assert machine.run(script, devices, phase, args=("--simulate",), ADJOIN_SIMULATE_FAIL=name).failed == [name]
