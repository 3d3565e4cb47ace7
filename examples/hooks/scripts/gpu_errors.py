#!/usr/bin/env python3
"""Init hook: no GPU has memory that is failing, and none has reported an XID that outlives the program it hit.

Which XIDs those are is a table. An XID that asks for a reset counts until the driver says that it wants none and some
time has passed since; one that asks for hands or a restart counts until the node was restarted (then the kernel's log
is empty). What programs cause themselves costs no capacity. The kernel's log is a ring: what it has lost is not seen.
"""

from __future__ import annotations

import re
import time
from dataclasses import dataclass, field
from enum import Enum

import nvidia
from hook import CannotJudge, Check, Context, Device, Parameter, Verdict, run, run_tool


class Action(Enum):
    """What an XID means for the next user. The words are those of `health.rules` in a DevicePool."""

    IGNORE = "Ignore"
    EVENT = "Event"
    RESET = "QuarantineUntilReset"
    REPLACE = "QuarantineUntilReplaced"


XIDS: dict[str, tuple[Action, str]] = {
    "IGNORE": (Action.IGNORE, "37 38 43 44 63 66 67 92 93 106 107 121 137 141 152 153 157 160 161"),
    "RESTART_APP": (
        Action.EVENT,
        "8 11 13 25 31 32 39 40 41 60 68 69 70 71 72 75 76 77 80 82 83 84 85 86 88 89 94 96 97 98 99 100 101 102 103"
        " 104 105 126 127 128 129 130 131 132 133 134 135 139",
    ),
    "WORKFLOW_XID_45": (Action.EVENT, "45"),  # follows another XID, which is judged by itself
    "CHECK_UVM": (Action.EVENT, "159"),
    "power smoothing": (Action.EVENT, "162 163 164 165"),  # the catalogue gives no bucket; performance, not errors
    "RESET_GPU": (Action.RESET, "46 62 64 95 109 110 119 120 136 140 143 155 156 158"),
    "WORKFLOW_XID_48": (Action.RESET, "48 171 172"),  # 171 and 172 tell more of a 48
    "WORKFLOW_NVLINK_ERR": (Action.RESET, "74"),
    "WORKFLOW_NVLINK5_ERR": (Action.RESET, "144 145 146 147 148 149 150"),
    "RESTART_BM": (Action.REPLACE, "79"),
    "RESTART_VM": (Action.REPLACE, "151"),
    "CHECK_MECHANICALS": (Action.REPLACE, "54"),
    "UPDATE_SWFW": (Action.REPLACE, "78"),
    "CONTACT_SUPPORT": (Action.REPLACE, "142"),
}
"""By NVIDIA's "Resolution Bucket (Immediate Action)" for A100 and newer, of October 2025:
docs.nvidia.com/deploy/xid-errors/analyzing-xid-catalog.html. The actions are ours."""

ACTIONS = {int(code): action for action, codes in XIDS.values() for code in codes.split()}
UNKNOWN = Action.RESET
"""For a code that the table does not have: nobody knows that it is harmless."""

RECOVERY_ACTION_CHANGED = 154
"""No error by itself. It says what the driver asks for, and nvidia-smi tells the present state of that."""

LINE = re.compile(r"^\[\s*(\d+)\.\d+\] NVRM: Xid \(PCI:([0-9a-fA-F:]+)\): (\d+),")
"""`[ 5012.331] NVRM: Xid (PCI:0000:c6:00): 79, pid=…`; seconds since the node started."""

NO_RECOVERY = "None"


@dataclass(frozen=True)
class Facts:
    """`xids` are (code, seconds ago). A string is "" and a number None where the driver tells nothing."""

    seen: bool
    ecc: str = ""
    sram_uncorrectable: int | None = None
    dram_uncorrectable: int | None = None
    broken_for_good: tuple[str, ...] = ()
    remap_pending: bool = False
    recovery_action: str = ""
    xids: tuple[tuple[int, int], ...] = field(default=())


def observe(context: Context) -> list[Facts]:
    """Asks nvidia-smi, and the kernel's log unless `kernel-log` is `skip`."""
    gpus = nvidia.look(context.devices)
    log = kernel_log() if context.parameters["kernel-log"] == "read" else {}
    facts = []
    for gpu in gpus:
        if gpu is None:
            facts.append(Facts(seen=False))
            continue
        sram = [
            gpu.number(f"ecc_errors/volatile/{name}")
            for name in ("sram_uncorrectable", "sram_uncorrectable_parity", "sram_uncorrectable_secded")
        ]
        facts.append(
            Facts(
                seen=True,
                ecc=gpu.text("ecc_mode/current_ecc"),
                sram_uncorrectable=sum(filter(None, sram)) if any(count is not None for count in sram) else None,
                dram_uncorrectable=gpu.number("ecc_errors/volatile/dram_uncorrectable"),
                broken_for_good=tuple(
                    name
                    for name in (
                        "remapped_rows/remapped_row_failure",
                        "ecc_errors/unrepairable_memory",
                        "ecc_errors/aggregate/sram_threshold_exceeded",
                    )
                    if gpu.text(name) == "Yes"
                ),
                remap_pending="Yes"
                in (gpu.text("remapped_rows/remapped_row_pending"), gpu.text("retired_pages/pending_retirement")),
                recovery_action=gpu.text("gpu_recovery_action"),
                xids=tuple(log.get(gpu.bus_address().rpartition(".")[0], ())),
            )
        )
    return facts


def kernel_log() -> dict[str, list[tuple[int, int]]]:
    """XIDs by PCI address without function, each with how many seconds ago.

    Raises:
        CannotJudge: The kernel's log may not be read (it takes the capability SYSLOG).
    """
    # syslog(2) rather than /dev/kmsg, which no container has.
    ran = run_tool(["dmesg", "--syslog"], 30)
    if ran.status:
        raise CannotJudge(f"the kernel's log cannot be read: {ran.err}")
    now, found = int(time.monotonic()), {}
    for line in ran.out.splitlines():
        if match := LINE.match(line):
            seconds, address, code = match.groups()
            found.setdefault(address.lower(), []).append((int(code), max(0, now - int(seconds))))
    return found


def judge(context: Context, device: Device, facts: Facts) -> Verdict:
    """Faults are what the next user would feel; the rest is said, and costs nothing."""
    if not facts.seen:
        return Verdict([f"nvidia-smi does not see {device.id}"])
    verdict = Verdict()
    if facts.ecc != "Enabled":
        where = verdict.faults if context.parameters["ecc"] == "required" else verdict.notes
        where.append("ECC is off" if facts.ecc else "has no ECC, or does not tell")
    verdict.faults += [f"{name.rpartition('/')[2]} is Yes" for name in facts.broken_for_good]
    if facts.sram_uncorrectable:
        verdict.faults.append(f"{facts.sram_uncorrectable} uncorrectable errors in SRAM")
    if facts.dram_uncorrectable:
        # Contained by the hardware: the program that was hit has ended (XID 94). Uncontained ones are XID 95.
        verdict.notes.append(f"{facts.dram_uncorrectable} uncorrectable errors in DRAM since its last reset")
    if facts.remap_pending:
        # NVML: a pending remapping does not affect future work; a reset carries it out.
        verdict.notes.append("a row remapping waits for a reset")
    if facts.recovery_action not in ("", NO_RECOVERY):
        verdict.faults.append(f"the driver asks for {facts.recovery_action}")
    hold_down = int(context.parameters["xid-hold-down"])
    for code in sorted({code for code, _ in facts.xids if code != RECOVERY_ACTION_CHANGED}):
        age = min(seconds for number, seconds in facts.xids if number == code)
        action = ACTIONS.get(code, UNKNOWN)
        text = f"XID {code} {age} s ago: {action.value}"
        recovered = facts.recovery_action == NO_RECOVERY and age >= hold_down
        if action is Action.REPLACE or (action is Action.RESET and not recovered):
            verdict.faults.append(text)
        elif action is not Action.IGNORE:
            verdict.notes.append(text)
    return verdict


CHECK = Check(
    says="No failing memory and no lasting XID",
    accepts=nvidia.may_be_gpu,
    wants="NVIDIA GPU",
    observe=observe,
    judge=judge,
    healthy=lambda context, device: Facts(seen=True, ecc="Enabled", recovery_action=NO_RECOVERY),
    broken=lambda context, device: Facts(seen=True, ecc="Enabled", recovery_action=NO_RECOVERY, xids=((79, 60),)),
    parameters={
        "ecc": Parameter("required", "required|optional"),
        "kernel-log": Parameter("read", "read|skip"),
        "xid-hold-down": Parameter("600", r"\d{1,7}"),
    },
)

if __name__ == "__main__":
    run(CHECK)
