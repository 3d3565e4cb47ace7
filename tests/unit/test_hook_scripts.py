"""The scripts of `examples/hooks`, run as a hook's container runs them, with fake vendor tools on PATH.

State is asserted: exit status, termination message, and what is left on the fake machine.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from tests.support.hook_machine import Machine, Obj, gpu, gpu_device, nic_device

INIT, CLEANUP = "init", "cleanup"
GPU_INIT = [("gpu_visible", INIT), ("gpu_errors", INIT)]
GPU_CLEANUP = [("gpu_scrub", CLEANUP), ("mig_teardown", CLEANUP)]
ALL = [
    *((script, phase, [gpu_device(1), gpu_device(2)]) for script, phase in (*GPU_INIT, *GPU_CLEANUP)),
    ("rdma_link", INIT, [nic_device(1), nic_device(2)]),
    ("rdma_link", CLEANUP, [nic_device(1), nic_device(2)]),
    ("gpudirect_bandwidth", INIT, [gpu_device(1), nic_device(1), gpu_device(2), nic_device(2)]),
]
EVERY_HOOK = pytest.mark.parametrize(("script", "phase", "devices"), ALL, ids=[f"{s} in {p}" for s, p, _ in ALL])
AFTERWARDS = {"query only": {"ADJOIN_PARAMETER_GPU_CHECK": "query"}}


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    """Two GPUs, two NICs, all tools, nothing wrong; no libcuda."""
    made = Machine(tmp_path)
    for tool in ("nvidia-smi", "dmesg", "ib_write_bw"):
        made.tool(tool)
    fine(made)
    for index in (1, 2):
        made.rdma(f"mlx5_{index}", f"0000:{index:02x}:01.0")
    return made


def fine(machine: Machine, *gpus: Obj, **more: Any) -> None:
    """What the tools say when nothing is wrong but what is given."""
    bandwidth = {f"mlx5_{n} GPU-{g}": 380.0 for n in (1, 2) for g in (1, 2)}
    machine.state(**{"gpus": gpus or [gpu(1), gpu(2)], "log": [], "bandwidth": bandwidth, **more})


def without_cuda(script: str) -> dict[str, str]:
    """What lets a healthy machine pass that has no libcuda."""
    return AFTERWARDS["query only"] if script == "gpu_visible" else {}


# --- the contract, the same for all -----------------------------------------------------------------------------------


@EVERY_HOOK
def test_a_healthy_device_passes(machine: Machine, script: str, phase: str, devices: list[Obj]) -> None:
    ended = machine.run(script, devices, phase, **without_cuda(script))
    assert (ended.status, ended.failed) == (0, []), ended.message


@EVERY_HOOK
def test_a_simulation_calls_no_tool(tmp_path: Path, script: str, phase: str, devices: list[Obj]) -> None:
    """No PATH, no sysfs, no machine: whatever was called would be missing."""
    ended = Machine(tmp_path).run(script, devices, phase, args=("--simulate",))
    assert (ended.status, ended.failed) == (0, []), ended.message
    assert "simulated" in ended.message


@EVERY_HOOK
def test_a_simulation_fails_the_device_that_it_is_told_to(
    tmp_path: Path, script: str, phase: str, devices: list[Obj]
) -> None:
    name = devices[0]["device"]
    ended = Machine(tmp_path).run(script, devices, phase, args=("--simulate",), ADJOIN_SIMULATE_FAIL=name)
    assert ended.status == 1
    assert ended.failed is not None
    assert name in ended.failed
    assert {name, "nic-1"} >= set(ended.failed), "only the device, and its partner in a pair"


@EVERY_HOOK
def test_a_missing_tool_is_no_health(tmp_path: Path, script: str, phase: str, devices: list[Obj]) -> None:
    ended = Machine(tmp_path).run(script, devices, phase)
    assert (ended.status, ended.failed) == (2, None), ended.message


GOOD = gpu_device(1)
MALFORMED = {
    "absent": "",
    "no JSON": "[",
    "deep": "[" * 100_000,
    "no list": json.dumps({"device": "gpu-0"}),
    "no devices": "[]",
    "null": "null",
    "entry no object": "[1]",
    "no name of the device": json.dumps([{k: v for k, v in GOOD.items() if k != "device"}]),
    "id a number": json.dumps([{**GOOD, "id": 7}]),
    "id empty": json.dumps([{**GOOD, "id": ""}]),
    "attributes a list": json.dumps([{**GOOD, "attributes": []}]),
    "owner a number": json.dumps([{**GOOD, "owner": 1}]),
}


@pytest.mark.parametrize("text", MALFORMED.values(), ids=MALFORMED)
@pytest.mark.parametrize("args", [(), ("--simulate",)], ids=["on a machine", "simulated"])
def test_malformed_devices_are_judged_by_nobody(machine: Machine, text: str, args: tuple[str, ...]) -> None:
    """With the hook that destroys most; all of them read their devices alike."""
    before = machine.now()
    ended = machine.run("mig_teardown", text, CLEANUP, args=args)
    assert (ended.status, ended.failed) == (2, None)
    assert "ADJOIN_DEVICES" in ended.message
    assert machine.now() == before


@EVERY_HOOK
def test_every_hook_reads_its_devices_alike(machine: Machine, script: str, phase: str, devices: list[Obj]) -> None:
    ended = machine.run(script, json.dumps(devices)[:-1], phase)
    assert (ended.status, ended.failed) == (2, None)
    assert "ADJOIN_DEVICES is not JSON" in ended.message


HOSTILE = {
    "command": "$(touch owned)",
    "quote": "'; touch owned; '",
    "option": "--gpu-reset",
    "path": "../../../../../etc/passwd",
    "newline": "gpu\n-1",
    "escape": "\x1b[31mred",
    "foreign letters": "gerät-ßΩ" * 300,
    "long": "x" * 5_000,
}


@EVERY_HOOK
def test_hostile_names_are_only_compared_and_printed(
    machine: Machine, script: str, phase: str, devices: list[Obj]
) -> None:
    """Also as uuid, parent, and name of the RDMA device. No such device is there: all are at fault, and nothing is
    run, opened or destroyed."""
    fine(machine, gpu(1, migs=[{"gi": "7", "ci": "0", "uuid": "MIG-1"}], instances=["7"]), gpu(2))
    before = machine.now()
    kinds = {device["name"] for device in devices}
    hostile = [
        {
            **gpu_device(1),
            "device": name,
            "id": f"GPU-{name}",
            "attributes": {"x/uuid": f"GPU-{name}", "x/parentUUID": name},
        }
        for name in HOSTILE.values()
        if "gpu" in kinds
    ] + [
        {**nic_device(1), "device": name, "id": name, "attributes": {"x/rdmaDevice": name}}
        for name in HOSTILE.values()
        if "nic" in kinds
    ]
    ended = machine.run(script, hostile, phase)
    assert ended.status == 1, ended.message
    assert ended.failed is None, "so long names do not fit into a termination message"
    assert ended.text.isascii()
    assert ended.text.isprintable()
    assert machine.now() == before
    assert not list(machine.folder.rglob("owned"))


@pytest.mark.parametrize("name", HOSTILE.values(), ids=HOSTILE)
def test_a_hostile_name_that_fits_comes_back_as_it_was(machine: Machine, name: str) -> None:
    """Adjoin finds the device by it."""
    ended = machine.run("gpu_errors", [gpu_device(1), {**gpu_device(3), "device": name}])
    assert ended.status == 1
    assert ended.failed == ([name] if len(json.dumps(name)) < 3000 else None)


def test_names_that_do_not_fit_into_the_message_are_left_out_as_a_whole(machine: Machine) -> None:
    """Adjoin then holds back all devices of the set."""
    devices = [{**gpu_device(n), "device": f"{n:03}-{'x' * 60}", "id": f"GPU-{n}"} for n in range(3, 128)]
    ended = machine.run("gpu_errors", devices)
    assert (ended.status, ended.failed) == (1, None)


@EVERY_HOOK
def test_c4_a_device_that_somebody_else_has_is_left_alone(
    machine: Machine, script: str, phase: str, devices: list[Obj]
) -> None:
    fine(machine, gpu(1, migs=[{"gi": "7", "ci": "0", "uuid": "MIG-1"}], instances=["7"]), gpu(2))
    before = machine.now()
    late = [{**devices[0], "owner": "uid-2"}, *devices[1:]]
    ended = machine.run(script, late, phase)
    assert (ended.status, ended.failed) == (2, None)
    assert "uid-2" in ended.message
    assert machine.now() == before
    own = [{**device, "owner": "uid-1"} for device in devices]
    assert machine.run(script, own, phase, args=("--simulate",)).status == 0


@pytest.mark.parametrize(
    ("script", "phase"),
    [("gpu_scrub", INIT), ("mig_teardown", INIT), ("gpudirect_bandwidth", CLEANUP), ("rdma_link", "")],
)
def test_a_hook_in_the_wrong_phase_does_nothing(machine: Machine, script: str, phase: str) -> None:
    before = machine.now()
    ended = machine.run(script, [gpu_device(1)], phase)
    assert (ended.status, ended.failed) == (2, None)
    assert machine.now() == before


@pytest.mark.parametrize(
    ("script", "phase", "device"),
    [(s, p, nic_device(1, id="node-a/nic-1")) for s, p in (*GPU_INIT, *GPU_CLEANUP)]
    + [("rdma_link", INIT, gpu_device(1))],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_device_of_another_kind_is_judged_by_nobody(machine: Machine, script: str, phase: str, device: Obj) -> None:
    assert machine.run(script, [device], phase).status == 2


@pytest.mark.parametrize(
    ("script", "phase", "name", "value"),
    [
        ("gpu_scrub", CLEANUP, "SCRUB", "thorough"),
        ("gpu_scrub", CLEANUP, "IDLE_MIB", "-1"),
        ("gpu_visible", INIT, "GPU_CHECK", "none"),
        ("gpu_errors", INIT, "XID_HOLD_DOWN", ""),
        ("rdma_link", INIT, "RDMA_PORT", "../1"),
        ("gpudirect_bandwidth", INIT, "GPUDIRECT_PERCENT", "0"),
    ],
)
def test_a_parameter_that_it_does_not_know_is_judged_by_nobody(
    machine: Machine, script: str, phase: str, name: str, value: str
) -> None:
    ended = machine.run(script, [gpu_device(1), nic_device(1)], phase, **{f"ADJOIN_PARAMETER_{name}": value})
    assert (ended.status, ended.failed) == (2, None)
    assert name in ended.message


BROKEN_TOOL = {
    "no XML": {"says": "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver."},
    "failure": {"says": "Unable to determine the device handle for GPU: GPU is lost.", "status": 15},
    "cut": {"says": "<nvidia_smi_log><gpu><uuid>GPU-1</uuid>"},
}


@pytest.mark.parametrize(("script", "phase"), [*GPU_INIT, *GPU_CLEANUP])
@pytest.mark.parametrize("state", BROKEN_TOOL.values(), ids=BROKEN_TOOL)
def test_a_tool_that_breaks_is_no_health(machine: Machine, script: str, phase: str, state: Obj) -> None:
    fine(machine, **state)
    ended = machine.run(script, [gpu_device(1)], phase)
    assert (ended.status, ended.failed) == (2, None)


# --- GPU visible ------------------------------------------------------------------------------------------------------

AT_FAULT = {
    "another card at the address": (gpu(1, uuid="GPU-other"), "does not see GPU-1"),
    "moved": (gpu(1, bus="00000000:99:00.0"), "is at 0000:99:00.0, not at 0000:01:00.0"),
    "smaller": (gpu(1, total=40960), "40960 MiB of memory instead of 81920 MiB"),
    "wants a reset": (gpu(1, facts={"gpu_recovery_action": "Reset"}), "asks for Reset"),
    "gives no value": (gpu(1, facts={"fan_speed": "[GPU requires reset]"}), "fan_speed"),
}


@pytest.mark.parametrize(("card", "says"), AT_FAULT.values(), ids=AT_FAULT)
def test_what_is_wrong_with_a_gpu_is_said_and_only_it_is_named(machine: Machine, card: Obj, says: str) -> None:
    fine(machine, card, gpu(2))
    ended = machine.run("gpu_visible", [gpu_device(1), gpu_device(2)], **AFTERWARDS["query only"])
    assert (ended.status, ended.failed) == (1, ["gpu-1"])
    assert says in ended.message


def test_a_gpu_without_uuid_is_found_by_its_address(machine: Machine) -> None:
    device = gpu_device(1, id="0000:01:00.0", attributes={}, driver="adjoin.dev")
    ended = machine.run("gpu_visible", [device], **AFTERWARDS["query only"])
    assert (ended.status, ended.failed) == (0, [])


def test_c23_a_query_that_is_answered_is_not_taken_for_health(machine: Machine) -> None:
    """No libcuda: nobody knows whether the GPU computes."""
    assert machine.run("gpu_visible", [gpu_device(1)]).status == 2


@pytest.mark.parametrize(
    ("behaviour", "status", "says"),
    [
        pytest.param({}, 0, "", id="computes"),
        pytest.param({"init": "999"}, 1, "cuInit returned 999", id="CUDA says no"),
        pytest.param({"broken": "1"}, 1, "does not keep what was written", id="memory does not keep"),
        pytest.param({"taken": "96"}, 1, "does not keep what was written", id="no memory to be had"),
    ],
)
def test_a_gpu_must_compute(machine: Machine, behaviour: dict[str, str], status: int, says: str) -> None:
    machine.cuda(seen=str(machine.folder / "seen"), **behaviour)
    ended = machine.run("gpu_visible", [gpu_device(2)])
    assert (ended.status, ended.failed) == (status, ["gpu-2"] if status else [])
    assert says in ended.message
    assert (machine.folder / "seen").read_text() == "GPU-2\n", "named by uuid, whatever its index"


def test_a_mig_device_is_seen_by_its_uuid_and_computes(machine: Machine) -> None:
    machine.cuda(seen=str(machine.folder / "seen"))
    fine(machine, gpu(1, migs=[mig("7"), mig("8")], instances=["7", "8"]))
    ended = machine.run("gpu_visible", [mig_device("8"), mig_device("9")])
    assert (ended.status, ended.failed) == (1, ["mig-9"])
    assert (machine.folder / "seen").read_text() == "MIG-8-0\n"


# --- errors -----------------------------------------------------------------------------------------------------------


def xid(index: int, code: int, ago: int = 60) -> list[Any]:
    """A line of the kernel's log."""
    return [ago, f"NVRM: Xid (PCI:0000:{index:02x}:00): {code}, pid=4242, name=python, Ch 00000008"]


def test_c23_an_xid_costs_a_card_only_what_the_table_says(machine: Machine) -> None:
    """31: the program's own. 94: it was ended, the card is well. 109: until a reset. 79: until hands were there."""
    codes = {1: 31, 2: 94, 3: 109, 4: 79}
    fine(machine, *(gpu(n) for n in codes), log=[xid(n, code) for n, code in codes.items()])
    ended = machine.run("gpu_errors", [gpu_device(n) for n in codes])
    assert (ended.status, ended.failed) == (1, ["gpu-3", "gpu-4"])
    assert "gpu-3: XID 109 60 s ago: QuarantineUntilReset" in ended.message
    assert "gpu-4: XID 79 60 s ago: QuarantineUntilReplaced" in ended.message


@pytest.mark.parametrize(
    ("code", "ago", "recovery", "status"),
    [
        pytest.param(43, 5, "None", 0, id="ignored"),
        pytest.param(13, 5, "None", 0, id="program's own"),
        pytest.param(95, 5, "None", 1, id="reset class, just now"),
        pytest.param(95, 4000, "None", 0, id="reset class, driver content since long"),
        pytest.param(95, 4000, "Reset", 1, id="reset class, driver not content"),
        pytest.param(95, 4000, "N/A", 1, id="reset class, driver tells nothing"),
        pytest.param(79, 4000, "None", 1, id="hands needed, however long ago"),
        pytest.param(9999, 5, "None", 1, id="unknown code"),
        pytest.param(154, 5, "None", 0, id="only says what the driver asks for"),
    ],
)
def test_c23_a_card_is_back_when_the_driver_says_so_and_time_has_passed(
    machine: Machine, code: int, ago: int, recovery: str, status: int
) -> None:
    fine(machine, gpu(1, facts={"gpu_recovery_action": recovery}), log=[xid(1, code, ago)])
    assert machine.run("gpu_errors", [gpu_device(1)]).status == status


def test_the_last_of_several_counts(machine: Machine) -> None:
    fine(machine, gpu(1), log=[xid(1, 109, 4000), xid(1, 109, 10), [1, "NVRM: something else"]])
    assert machine.run("gpu_errors", [gpu_device(1)]).failed == ["gpu-1"]


@pytest.mark.parametrize(
    ("facts", "status", "says"),
    [
        pytest.param({"ecc_mode/current_ecc": "Disabled"}, 1, "ECC is off", id="ECC off"),
        pytest.param({"ecc_mode/current_ecc": "N/A"}, 1, "no ECC", id="no ECC"),
        pytest.param(
            {"ecc_errors/volatile/sram_uncorrectable_parity": "2"}, 1, "2 uncorrectable errors in SRAM", id="SRAM"
        ),
        pytest.param({"ecc_errors/volatile/dram_uncorrectable": "3"}, 0, "3 uncorrectable errors in DRAM", id="DRAM"),
        pytest.param(
            {"ecc_errors/aggregate/sram_threshold_exceeded": "Yes"}, 1, "sram_threshold_exceeded", id="threshold"
        ),
        pytest.param({"remapped_rows/remapped_row_failure": "Yes"}, 1, "remapped_row_failure", id="remap failed"),
        pytest.param({"remapped_rows/remapped_row_pending": "Yes"}, 0, "waits for a reset", id="remap pending"),
        pytest.param({"gpu_recovery_action": "Drain and Reset"}, 1, "Drain and Reset", id="driver asks"),
    ],
)
def test_memory_errors(machine: Machine, facts: Obj, status: int, says: str) -> None:
    fine(machine, gpu(1, facts=facts), gpu(2))
    ended = machine.run("gpu_errors", [gpu_device(1), gpu_device(2)])
    assert (ended.status, ended.failed) == (status, ["gpu-1"] if status else [])
    assert says in ended.message


def test_cards_without_ecc_pass_where_the_pool_says_so(machine: Machine) -> None:
    fine(machine, gpu(1, facts={"ecc_mode/current_ecc": "N/A"}))
    assert machine.run("gpu_errors", [gpu_device(1)], ADJOIN_PARAMETER_ECC="optional").status == 0


def test_a_log_that_may_not_be_read_is_no_health(machine: Machine) -> None:
    fine(machine, log=None)
    ended = machine.run("gpu_errors", [gpu_device(1)])
    assert (ended.status, ended.failed) == (2, None)
    assert "Operation not permitted" in ended.message
    assert machine.run("gpu_errors", [gpu_device(1)], ADJOIN_PARAMETER_KERNEL_LOG="skip").status == 0


# --- scrub ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("card", "says"),
    [
        pytest.param(
            gpu(1, processes=[{"pid": 4242, "name": "python"}]), "in use by process 4242 (python)", id="c36 named"
        ),
        pytest.param(gpu(1, processes=[{"pid": 4242}]), "in use by process 4242", id="c36 of another namespace"),
        pytest.param(gpu(1, used=517), "517 MiB are in use by a process that is not visible", id="hidden"),
        pytest.param(gpu(1, used="[Unknown Error]"), "does not tell", id="unknown"),
    ],
)
@pytest.mark.parametrize("scrub", ["quick", "full"])
def test_c5_a_device_that_is_not_clean_is_not_handed_on(machine: Machine, card: Obj, says: str, scrub: str) -> None:
    machine.cuda(seen=str(machine.folder / "seen"))
    fine(machine, card, gpu(2))
    ended = machine.run("gpu_scrub", [gpu_device(1), gpu_device(2)], CLEANUP, ADJOIN_PARAMETER_SCRUB=scrub)
    assert (ended.status, ended.failed) == (1, ["gpu-1"])
    assert says in ended.message
    if scrub == "full":
        assert (machine.folder / "seen").read_text() == "GPU-2\n", "what is in use is not written to"


@pytest.mark.parametrize(
    ("behaviour", "status", "says"),
    [
        pytest.param({}, 0, "96 MiB zeroed", id="zeroed"),
        pytest.param({"broken": "1"}, 1, "are not 0 after zeros were written", id="b6 reads back"),
        pytest.param({"taken": "32"}, 1, "only 64 of 96 MiB could be zeroed", id="not all of it"),
        pytest.param({"init": "3"}, 1, "cuInit returned 3", id="CUDA says no"),
    ],
)
def test_b6_memory_is_zero_when_it_reads_zero(
    machine: Machine, behaviour: dict[str, str], status: int, says: str
) -> None:
    machine.cuda(**behaviour)
    ended = machine.run("gpu_scrub", [gpu_device(1)], CLEANUP, ADJOIN_PARAMETER_SCRUB="full")
    assert (ended.status, ended.failed) == (status, ["gpu-1"] if status else [])
    assert says in ended.message


def test_c5_what_cannot_be_zeroed_is_not_clean(machine: Machine) -> None:
    """No libcuda."""
    assert machine.run("gpu_scrub", [gpu_device(1)], CLEANUP, ADJOIN_PARAMETER_SCRUB="full").status == 2


def test_a_mig_device_is_clean_whatever_runs_on_its_neighbour(machine: Machine) -> None:
    neighbour = {**mig("8"), "used": 9000}
    runs = [{"pid": 4242, "name": "python", "gi": "8", "ci": "0"}]
    fine(machine, gpu(1, used=9000, migs=[mig("7"), neighbour], instances=["7", "8"], processes=runs))
    ended = machine.run("gpu_scrub", [mig_device("7"), mig_device("8")], CLEANUP)
    assert (ended.status, ended.failed) == (1, ["mig-8"])
    assert "process 4242 (python)" in ended.message


# --- RDMA -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("port", "status", "says"),
    [
        pytest.param({}, 0, "400 Gb/s", id="up"),
        pytest.param({"state": "1: DOWN"}, 1, "is DOWN", id="down"),
        pytest.param({"state": "2: INIT"}, 1, "is INIT", id="no subnet manager"),
        pytest.param({"rate": "100 Gb/sec (4X EDR)"}, 1, "runs at 100 Gb/s instead of 400", id="slow"),
        pytest.param({"rate": ""}, 1, "does not tell its rate", id="no rate"),
    ],
)
@pytest.mark.parametrize("phase", [INIT, CLEANUP])
@pytest.mark.parametrize("known_by", ["name", "address"])
def test_an_rdma_link(machine: Machine, port: Obj, status: int, says: str, phase: str, known_by: str) -> None:
    machine.rdma("mlx5_7", "0000:07:01.0", **port)
    device = nic_device(7) if known_by == "name" else nic_device(7, attributes={})
    ended = machine.run("rdma_link", [nic_device(1), device], phase, ADJOIN_PARAMETER_RDMA_GBPS="400")
    assert (ended.status, ended.failed) == (status, ["nic-7"] if status else [])
    assert says in ended.message


def test_c27_a_nic_that_did_not_come_back_is_at_fault(machine: Machine) -> None:
    ended = machine.run("rdma_link", [nic_device(1), nic_device(3)], CLEANUP)
    assert (ended.status, ended.failed) == (1, ["nic-3"])


# --- GPUDirect --------------------------------------------------------------------------------------------------------

PAIRS = [gpu_device(1), gpu_device(2), nic_device(2), nic_device(1)]
BANDWIDTH = {
    "both well": ({"1 1": 380, "2 2": 380}, []),
    "one slow": ({"1 1": 380, "2 2": 110}, ["gpu-2", "nic-2"]),
    "one not at all": ({"1 1": None, "2 2": 380}, ["gpu-1", "nic-1"]),
}


@pytest.mark.parametrize(("gbps", "failed"), BANDWIDTH.values(), ids=BANDWIDTH)
def test_the_pair_that_was_allocated_is_measured(machine: Machine, gbps: dict[str, float], failed: list[str]) -> None:
    """By root complex, whatever the order; any other pair would fail here for lack of a value."""
    fine(machine, bandwidth={f"mlx5_{pair[0]} GPU-{pair[-1]}": value for pair, value in gbps.items()})
    ended = machine.run("gpudirect_bandwidth", PAIRS)
    assert (ended.status, ended.failed) == (1 if failed else 0, failed), ended.message


@pytest.mark.parametrize(
    ("gpu_places", "nic_places"),
    [
        pytest.param(({"numaNode": 0}, {"numaNode": 1}), ({"numaNode": 1}, {"numaNode": 0}), id="NUMA node"),
        pytest.param(({"numaNode": [0]}, {"numaNode": [2, 1]}), ({"numaNode": [1]}, {"numaNode": 0}), id="lists"),
        pytest.param(({}, {"pcieRoot": "pci1"}), ({"pcieRoot": "pci1"}, {}), id="root of one pair only"),
    ],
)
def test_pairs_are_the_nearest(machine: Machine, gpu_places: tuple[Obj, Obj], nic_places: tuple[Obj, Obj]) -> None:
    """The first GPU has the second NIC beside it, the second GPU the first."""
    fine(machine, bandwidth={"mlx5_2 GPU-1": 380, "mlx5_1 GPU-2": 380})
    gpus = [
        gpu_device(n, attributes={"x/uuid": f"GPU-{n}", **{f"x/{k}": v for k, v in at.items()}})
        for n, at in zip((1, 2), gpu_places, strict=True)
    ]
    nics = [
        nic_device(n, attributes={"x/rdmaDevice": f"mlx5_{n}", **{f"x/{k}": v for k, v in at.items()}})
        for n, at in zip((1, 2), nic_places, strict=True)
    ]
    ended = machine.run("gpudirect_bandwidth", [*reversed(gpus), *nics])
    assert (ended.status, ended.failed) == (0, []), ended.message


@pytest.mark.parametrize("absent", ["gpu", "nic"])
def test_only_who_is_not_there_is_to_blame_for_it(machine: Machine, absent: str) -> None:
    numbers = {"gpu": 1, "nic": 1, absent: 9}
    ended = machine.run("gpudirect_bandwidth", [gpu_device(numbers["gpu"]), nic_device(numbers["nic"])])
    assert (ended.status, ended.failed) == (1, [f"{absent}-9"])


def test_who_does_well_in_another_pair_is_not_to_blame(machine: Machine) -> None:
    """Two GPUs share a NIC, as on many machines; one of them is slow."""
    fine(machine, bandwidth={"mlx5_1 GPU-1": 380, "mlx5_1 GPU-2": 90})
    ended = machine.run("gpudirect_bandwidth", [gpu_device(1), gpu_device(2), nic_device(1)])
    assert (ended.status, ended.failed) == (1, ["gpu-2"])
    assert "90 of 400 Gb/s with nic-1" in ended.message


@pytest.mark.parametrize(
    ("state", "devices", "says"),
    [
        pytest.param({"without_cuda": True}, PAIRS, "cannot use GPU memory", id="perftest without CUDA"),
        pytest.param({"no_table": True}, PAIRS, "no table", id="strange output"),
        pytest.param({}, [gpu_device(1)], "needs GPUs and RDMA NICs", id="no NIC"),
        pytest.param({}, [nic_device(1)], "needs GPUs and RDMA NICs", id="no GPU"),
    ],
)
def test_bandwidth_that_cannot_be_measured_is_judged_by_nobody(
    machine: Machine, state: Obj, devices: list[Obj], says: str
) -> None:
    fine(machine, **state)
    ended = machine.run("gpudirect_bandwidth", devices)
    assert (ended.status, ended.failed) == (2, None)
    assert says in ended.message


# --- MIG --------------------------------------------------------------------------------------------------------------


def mig(instance: str, compute: str = "0") -> Obj:
    """A MIG device as the fake nvidia-smi knows it."""
    return {"gi": instance, "ci": compute, "uuid": f"MIG-{instance}-{compute}"}


def mig_device(instance: str, compute: str = "0", parent: str = "GPU-1") -> Obj:
    """The same as an entry of ADJOIN_DEVICES."""
    uuid = f"MIG-{instance}-{compute}"
    attributes = {"gpu.nvidia.com/type": "mig", "gpu.nvidia.com/parentUUID": parent}
    return gpu_device(1, device=f"mig-{instance}", id=uuid, attributes=attributes, capacity={})


def test_a_whole_gpu_is_left_without_mig_devices_and_others_are_not_touched(machine: Machine) -> None:
    """Also a GPU instance that never got its compute instance goes."""
    fine(
        machine, gpu(1, migs=[mig("7"), mig("8")], instances=["7", "8", "9"]), gpu(2, migs=[mig("3")], instances=["3"])
    )
    ended = machine.run("mig_teardown", [gpu_device(1)], CLEANUP)
    assert (ended.status, ended.failed) == (0, []), ended.message
    first, second = machine.now()["gpus"]
    assert (first["migs"], first["instances"]) == ([], [])
    assert (second["migs"], second["instances"]) == ([mig("3")], ["3"])
    assert machine.run("mig_teardown", [gpu_device(1)], CLEANUP).status == 0, "a second time changes nothing"


def test_a_mig_device_is_taken_apart_alone(machine: Machine) -> None:
    fine(machine, gpu(1, migs=[mig("7"), mig("8", "0"), mig("8", "1")], instances=["7", "8"]))
    ended = machine.run("mig_teardown", [mig_device("7"), mig_device("8", "1")], CLEANUP)
    assert (ended.status, ended.failed) == (0, []), ended.message
    (left,) = machine.now()["gpus"]
    assert (left["migs"], left["instances"]) == ([mig("8", "0")], ["8"])


def test_what_is_gone_already_is_fine_and_half_of_it_is_not(machine: Machine) -> None:
    fine(machine, gpu(1, migs=[mig("8")], instances=["8"]))
    assert machine.run("mig_teardown", [mig_device("7")], CLEANUP).status == 0
    fine(machine, gpu(1, migs=[mig("8")], instances=["7", "8"]))
    ended = machine.run("mig_teardown", [mig_device("7")], CLEANUP)
    assert (ended.status, ended.failed) == (1, ["mig-7"])
    assert machine.run("mig_teardown", [mig_device("7", parent="GPU-9")], CLEANUP).status == 1, "its GPU is not there"


@pytest.mark.parametrize(
    ("more", "says"),
    [
        pytest.param(
            {"processes": [{"pid": 99, "name": "dcgm", "gi": "7", "ci": "0"}]}, "process 99 (dcgm)", id="held"
        ),
        pytest.param({"stuck": "7"}, "In use by another client", id="held by nobody that is seen"),
        pytest.param({"lies": True}, "GPU instance 7 is left", id="b6 says done, is not"),
    ],
)
@pytest.mark.parametrize("device", [gpu_device(1), mig_device("7")], ids=["whole GPU", "MIG device"])
def test_c36_what_is_held_is_named_and_others_go_on(machine: Machine, more: Obj, says: str, device: Obj) -> None:
    held = gpu(1, migs=[mig("7")], instances=["7"], **more)
    fine(machine, held, gpu(2, migs=[mig("3")], instances=["3"]))
    ended = machine.run("mig_teardown", [device, gpu_device(2)], CLEANUP)
    assert (ended.status, ended.failed) == (1, [device["device"]])
    assert says in ended.message
    first, second = machine.now()["gpus"]
    assert first["instances"] == ["7"]
    assert second["instances"] == []


def test_a_gpu_without_mig_has_nothing_to_take_apart(machine: Machine) -> None:
    fine(machine, gpu(1, facts={"mig_mode/current_mig": "Disabled"}))
    ended = machine.run("mig_teardown", [gpu_device(1)], CLEANUP)
    assert ended.status == 0
    assert re.search("MIG is off", ended.message)
