#!/usr/bin/env python3
"""Init and cleanup hook: limits of a part in the MPS control daemon of its card, set and read back.

The node runs one control daemon a card, with its pipe directory at <mps-pipes>/<uuid of the card>; this hook starts and
ends none. A daemon knows one limit for all that do not set their own, so it gets the largest that the card's parts ask,
and each client its own by the variables that Adjoin gives it. Which parts there are stands in a file beside the pipe,
under a lock, so that hooks of several claims do not get in each other's way.

What is reported is what a client of the part can have: the lesser of its own limit and the daemon's, as read back.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
from dataclasses import dataclass
from typing import Any

import nvidia
from hook import CannotJudge, Check, Context, Device, Parameter, Verdict, run, run_tool

SECONDS = 30
MEBIBYTE = 1 << 20
UNITS = {"": 1, "K": 1 << 10, "M": MEBIBYTE, "G": 1 << 30}
RECORD = "adjoin-parts.json"


@dataclass(frozen=True)
class Facts:
    """Limits as read back from the daemon; None where none is set. `pipe` is its directory."""

    pipe: str
    percent: float | None = None
    memory: int | None = None
    error: str = ""


def observe(context: Context) -> list[Facts]:
    """Sets and reads back, device by device."""
    return [work(context, device) for device in context.devices]


def pipe_of(context: Context, device: Device) -> str:
    """The daemon's directory. Raises CannotJudge for an id that could lead elsewhere."""
    if not re.fullmatch(r"(GPU|MIG)-[\w-]+", device.id):
        raise CannotJudge(f"{device.name} has no uuid, and daemons are found by it")
    return os.path.join(context.parameters["mps-pipes"], device.id)


def work(context: Context, device: Device) -> Facts:
    """One part, or the whole card, of which nobody has a part then."""
    told = device.share or {}
    if told.get("mode") != "MPS":
        raise CannotJudge(f"{device.name} is not divided by MPS: name this hook's devices, or use another pool")
    pipe = pipe_of(context, device)
    if not os.path.isdir(pipe):
        return Facts(pipe, error=f"there is no MPS daemon at {pipe}")
    with open(os.path.join(pipe, RECORD), "a+", encoding="ascii") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        file.seek(0)
        parts = _parts(file.read())
        key = f"{context.claim_uid}/{device.part}"
        if not device.part:
            parts = {}
        elif context.phase == "init":
            parts[key] = {"memory": told.get("memory"), "compute": told.get("compute")}
        else:
            parts.pop(key, None)
        percent, memory = most(parts, "compute"), most(parts, "memory")
        commands = [f"set_default_active_thread_percentage {max(1, (percent or 1000) // 10)}"]
        if memory is not None:
            commands.append(f"set_default_device_pinned_mem_limit 0 {max(1, memory // MEBIBYTE)}M")
        error = control(pipe, commands)[1]
        found = Facts(pipe, *read_back(pipe), error=error)
        file.seek(0)
        file.truncate()
        json.dump(parts, file)
    return found


def _parts(text: str) -> dict[str, Any]:
    try:
        found = json.loads(text or "{}")
    except ValueError:
        found = {}
    return found if isinstance(found, dict) else {}


def most(parts: dict[str, Any], name: str) -> int | None:
    """The largest that any part asks; None where one asks for no limit, or there are none."""
    asked = [each.get(name) for each in parts.values()]
    return None if not asked or None in asked else max(asked)


def control(pipe: str, commands: list[str]) -> tuple[str, str]:
    """What the daemon said, and why it would not do it. Raises CannotJudge: its program is missing or hangs."""
    text = "".join(f"{command}\n" for command in commands)
    ran = run_tool(["nvidia-cuda-mps-control"], SECONDS, {"CUDA_MPS_PIPE_DIRECTORY": pipe}, text)
    return ran.out, f"{ran.out} {ran.err}".strip() if ran.status else ""


def read_back(pipe: str) -> tuple[float | None, int | None]:
    """The daemon's limits: percent of threads, bytes of memory."""
    threads, _ = control(pipe, ["get_default_active_thread_percentage"])
    memory, _ = control(pipe, ["get_default_device_pinned_mem_limit 0"])
    percent = re.search(r"(\d+(?:\.\d+)?)", threads)
    amount = re.search(r"(\d+)\s*([KMG]?)B?\s*$", memory.strip())
    limit = int(amount.group(1)) * UNITS[amount.group(2)] if amount else None
    return float(percent.group(1)) if percent else None, limit


def own(device: Device, facts: Facts) -> tuple[int | None, int | None]:
    """What a client of the part can have, in bytes and thousandths; None where nothing limits it."""
    told = device.share or {}
    memory, compute = told.get("memory"), told.get("compute")
    if memory is not None and facts.memory is not None:
        memory = min(memory, facts.memory) if facts.memory < memory - MEBIBYTE else memory
    if compute is not None and facts.percent is not None:
        compute = min(compute, int(facts.percent * 10)) if facts.percent < max(1, compute // 10) else compute
    return memory, compute


def judge(context: Context, device: Device, facts: Facts) -> Verdict:
    """Right is only what was read back."""
    if facts.error:
        return Verdict([facts.error[:200]])
    if facts.percent is None:
        return Verdict([f"the MPS daemon at {facts.pipe} does not tell its limits"])
    if context.phase == "cleanup":
        return Verdict()
    told = device.share or {}
    if device.part and told.get("memory") is not None and facts.memory is None:
        # A client that unsets its own variable would have all of the card.
        return Verdict(notes=["the daemon has no limit of memory, as another part asks for none"])
    return Verdict()


def report(context: Context, device: Device, facts: Facts) -> dict[str, Any]:
    """What a client of the part can have, and where its daemon is."""
    memory, compute = own(device, facts)
    told = {"memory": memory, "compute": compute, "pipe": facts.pipe}
    return {name: value for name, value in told.items() if value is not None}


def simulated(context: Context, device: Device) -> Facts:
    """What a daemon says with which all went well."""
    return Facts(pipe_of(context, device), 100.0)


CHECK = Check(
    says="Limits of MPS are set",
    accepts=nvidia.is_gpu,
    wants="NVIDIA GPU",
    observe=observe,
    judge=judge,
    healthy=simulated,
    broken=lambda context, device: Facts(pipe_of(context, device), error="Cannot find MPS control daemon process"),
    parameters={"mps-pipes": Parameter("/run/adjoin/mps", r"/[\w./-]+")},
    report=report,
)

if __name__ == "__main__":
    run(CHECK)
