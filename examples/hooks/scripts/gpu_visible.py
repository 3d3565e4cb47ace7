#!/usr/bin/env python3
"""Init hook: each GPU is there, is the one that was allocated, and computes.

That a query is answered proves little: a GPU that needs a reset still answers it. So unless `gpu-check` is `query`,
a little memory is filled and read back through CUDA as well.
"""

from __future__ import annotations

import json
import os
import re
import sys
from dataclasses import dataclass

import cuda
import nvidia
from hook import CannotJudge, Check, Context, Device, Parameter, Verdict, run, run_tool

MIB = 64
"""So much memory is filled: some pages of 2 MiB, and little beside the smallest MIG device."""

SECONDS = 60
"""Making a CUDA context takes below a second a GPU, without persistence mode some seconds."""

MEMORY_TOLERANCE = 0.05
"""nvidia-smi's total leaves out what some drivers keep back, so it may be below what was published."""

UNITS = {
    "": 1,
    "Ki": 1 << 10,
    "Mi": 1 << 20,
    "Gi": 1 << 30,
    "Ti": 1 << 40,
    "k": 10**3,
    "M": 10**6,
    "G": 10**9,
    "T": 10**12,
}


@dataclass(frozen=True)
class Facts:
    """What was found under the device's uuid (or, where none is known, its PCI address)."""

    seen: bool
    bus_address: str = ""
    memory_bytes: int | None = None
    recovery_action: str = ""
    errors: tuple[str, ...] = ()
    compute_error: str = ""


def observe(context: Context) -> list[Facts]:
    """Asks nvidia-smi, then CUDA for those that are there.

    Raises:
        CannotJudge: A tool or libcuda is missing.
    """
    facts = []
    for gpu in nvidia.look(context.devices):
        if gpu is None:
            facts.append(Facts(seen=False))
            continue
        total = gpu.number("fb_memory_usage/total")
        facts.append(
            Facts(
                seen=True,
                bus_address=gpu.bus_address(),
                memory_bytes=None if total is None or gpu.mig is not None else total << 20,
                # Since driver 565 or so; what XID 154 reports.
                recovery_action=gpu.text("gpu_recovery_action"),
                errors=tuple(
                    f"{element.tag}: {element.text.strip()}"
                    for element in gpu.whole.iter()
                    if element.text and nvidia.ERROR.search(element.text) and element.tag != "process_name"
                ),
                compute_error=compute(gpu.uuid) if context.parameters["gpu-check"] == "compute" else "",
            )
        )
    return facts


def compute(uuid: str) -> str:
    """What went wrong when a little memory was filled and read back; "" when all went well."""
    script = os.path.join(os.path.dirname(os.path.abspath(__file__)), "cuda.py")
    ran = run_tool([sys.executable, "-B", script, uuid, str(MIB)], SECONDS)
    if ran.status not in (0, cuda.CUDA_FAILED):
        raise CannotJudge(f"CUDA cannot be tried: {ran.out} {ran.err}")
    said = json.loads(ran.out)
    if ran.status:
        return str(said["error"])
    return "" if said["zeroed"] and not said["wrong"] else f"memory does not keep what was written: {said}"


def judge(context: Context, device: Device, facts: Facts) -> Verdict:
    """At fault: not there, elsewhere, smaller than published, in need of a reset, or unable to compute."""
    if not facts.seen:
        return Verdict([f"nvidia-smi does not see {device.id}"])
    verdict = Verdict()
    address = nvidia.bus_address(str(device.attribute("pciBusID") or ""))
    if address and facts.bus_address and address != facts.bus_address:
        verdict.faults.append(f"is at {facts.bus_address}, not at {address}")
    memory = quantity_bytes(str(device.capacity_of("memory") or ""))
    if memory and facts.memory_bytes is not None and facts.memory_bytes < memory * (1 - MEMORY_TOLERANCE):
        verdict.faults.append(f"has {facts.memory_bytes >> 20} MiB of memory instead of {memory >> 20} MiB")
    if facts.recovery_action and facts.recovery_action != "None":
        verdict.faults.append(f"the driver asks for {facts.recovery_action}")
    verdict.faults += facts.errors[:3]
    if facts.compute_error:
        verdict.faults.append(facts.compute_error)
    return verdict


def quantity_bytes(text: str) -> int | None:
    """A Kubernetes quantity such as 40Gi; None for what is none."""
    found = re.fullmatch(r"(\d+)([KMGT]i|[kMGT]?)", text)
    return int(found.group(1)) * UNITS[found.group(2)] if found else None


CHECK = Check(
    says="GPUs are visible and compute",
    accepts=nvidia.may_be_gpu,
    wants="NVIDIA GPU",
    observe=observe,
    judge=judge,
    healthy=lambda context, device: Facts(seen=True, recovery_action="None"),
    broken=lambda context, device: Facts(seen=False),
    parameters={"gpu-check": Parameter("compute", "query|compute")},
)

if __name__ == "__main__":
    run(CHECK)
