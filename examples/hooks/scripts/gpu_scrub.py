#!/usr/bin/env python3
"""Cleanup hook: nobody is left on the GPU, and (`scrub: full`) its memory is zero.

It ends nothing that still runs: whoever is found is named, and the device stays held back. `quick` looks only.
"""

from __future__ import annotations

import json
import os
import sys
from dataclasses import dataclass

import cuda
import nvidia
from hook import CannotJudge, Check, Context, Device, Parameter, Verdict, run, run_tool

SECONDS = 120
"""Filling memory runs at hundreds of GB/s; the driver maps it more slowly: a minute is plenty for 288 GB."""

LEAST_SHARE = 0.98
"""Of what is free, so much must be zeroed: what is smaller than a chunk, or cut up, cannot be had."""


@dataclass(frozen=True)
class Facts:
    """Before anything was written: who is there and how much memory is taken. After it: what `cuda.py` said."""

    seen: bool
    used_mib: int | None = None
    holders: tuple[str, ...] = ()
    free_bytes: int = 0
    zeroed_bytes: int = 0
    wrong_words: int = 0
    error: str = ""
    shared: bool = False


def observe(context: Context) -> list[Facts]:
    """Looks at all devices first; then only writes to those that nobody holds."""
    facts = []
    for device, gpu in zip(context.devices, nvidia.look(context.devices)):
        if device.part:
            facts.append(Facts(True, shared=True))
            continue
        if gpu is None:
            facts.append(Facts(seen=False))
            continue
        found = Facts(True, gpu.memory_used_mib(), tuple(gpu.holders()))
        if context.parameters["scrub"] == "full" and not in_use(context, found):
            found = fill(found, gpu.uuid)
        facts.append(found)
    return facts


def in_use(context: Context, facts: Facts) -> str:
    """Why the device is not free; "" when it is.

    A process of another pod may be hidden from nvidia-smi, but never the memory of its CUDA context.
    """
    if facts.holders:
        return f"in use by {', '.join(facts.holders)}"
    if facts.used_mib is None:
        return "nvidia-smi does not tell how much of its memory is used"
    if facts.used_mib > int(context.parameters["idle-mib"]):
        return f"{facts.used_mib} MiB are in use by a process that is not visible from here"
    return ""


def fill(facts: Facts, uuid: str) -> Facts:
    """Writes and reads back."""
    script = os.path.join(os.path.dirname(os.path.abspath(__file__)), "cuda.py")
    ran = run_tool([sys.executable, "-B", script, uuid, "all"], SECONDS)
    if ran.status not in (0, cuda.CUDA_FAILED):
        raise CannotJudge(f"memory cannot be zeroed: {ran.out} {ran.err}")
    said = json.loads(ran.out)
    if ran.status:
        return Facts(True, facts.used_mib, facts.holders, error=str(said["error"]))
    return Facts(True, facts.used_mib, facts.holders, said["free"], said["zeroed"], said["wrong"])


def judge(context: Context, device: Device, facts: Facts) -> Verdict:
    """Clean is only what was seen to be clean."""
    if not facts.seen:
        return Verdict([f"nvidia-smi does not see {device.id}"])
    if facts.shared:
        # Whose memory is whose on a card that several share nvidia-smi does not tell.
        return Verdict(notes=["a part of it is meant, and others may be on it: not looked at"])
    busy = in_use(context, facts)
    if busy:
        return Verdict([busy])
    if context.parameters["scrub"] == "quick":
        return Verdict(notes=["nobody on it, memory not zeroed"])
    if facts.error:
        return Verdict([facts.error])
    if facts.wrong_words:
        return Verdict([f"{facts.wrong_words} words are not 0 after zeros were written"])
    if not facts.free_bytes or facts.zeroed_bytes < LEAST_SHARE * facts.free_bytes:
        return Verdict([f"only {facts.zeroed_bytes >> 20} of {facts.free_bytes >> 20} MiB could be zeroed"])
    return Verdict(notes=[f"{facts.zeroed_bytes >> 20} MiB zeroed"])


CHECK = Check(
    says="Nobody is left on the GPUs",
    accepts=nvidia.may_be_gpu,
    wants="NVIDIA GPU",
    observe=observe,
    judge=judge,
    healthy=lambda context, device: Facts(True, 0, (), 1 << 30, 1 << 30),
    broken=lambda context, device: Facts(True, 512, ("process 4242 (simulated)",)),
    parameters={
        "scrub": Parameter("quick", "quick|full"),
        # An idle GPU shows a few MiB, the smallest CUDA context far more than a hundred.
        "idle-mib": Parameter("64", r"\d{1,6}"),
    },
    phases=("cleanup",),
)

if __name__ == "__main__":
    run(CHECK)
