#!/usr/bin/env python3
"""Cleanup hook: takes apart the MIG devices that were allocated, and on whole GPUs all that were made there.

Compute instances first, then GPU instances, as `nvidia-smi mig` wants it; what counts is what is left when it is read
back. Nothing that is in use is touched. Idempotent: what is gone already is fine. MIG mode stays as it is.

Not for pools whose MIG devices are made once for all (static partitions): there they are the inventory.
"""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from dataclasses import dataclass, field

import nvidia
from hook import CannotJudge, Check, Context, Device, Verdict, run, run_tool

SECONDS = 30
PART = "a part of it is meant, and others have others: left to mig-partition"
ROW = re.compile(r"\|\s+\d+\s+MIG\s+\S+\s+\d+\s+(\d+)\s+\d+:\d+\s+\|")
"""`|   0  MIG 1g.5gb          19       13          6:1     |`: the last number but the placement is the instance."""


@dataclass(frozen=True)
class Facts:
    """`left` is what was still there afterwards, `said` what nvidia-smi said to destroying it."""

    seen: bool
    holders: tuple[str, ...] = ()
    left: tuple[str, ...] = field(default=())
    said: str = ""
    note: str = ""


def observe(context: Context) -> list[Facts]:
    """Takes apart and reads back, device by device: one that is stuck does not keep the others."""
    return [Facts(True, note=PART) if device.part else take_apart(device) for device in context.devices]


def take_apart(device: Device) -> Facts:
    """One device.

    Raises:
        CannotJudge: nvidia-smi is missing, hangs, or prints what is not understood.
    """
    (gpu,) = nvidia.look([device])
    if gpu is None:
        return gone_already(device)
    if gpu.text("mig_mode/current_mig") != "Enabled":
        return Facts(True, note="MIG is off")
    holders = tuple(gpu.holders())
    if holders:
        return Facts(True, holders)
    if gpu.mig is None:
        said = mig(gpu.whole, "-dci") + mig(gpu.whole, "-dgi")
        left = instances(gpu.whole)
    else:
        instance, compute = gpu.instances()
        said = mig(gpu.whole, "-dci", "-gi", instance, "-ci", compute)
        mates = [
            other
            for other in gpu.whole.iterfind("mig_devices/mig_device")
            if other is not gpu.mig and (other.findtext("gpu_instance_id") or "").strip() == instance
        ]
        if mates:
            # Somebody else has a compute instance in the same GPU instance.
            left = [] if nvidia.look([device]) == [None] else [f"compute instance {compute} in {instance}"]
        else:
            said += mig(gpu.whole, "-dgi", "-gi", instance)
            left = [name for name in instances(gpu.whole) if name == instance]
    return Facts(True, left=tuple(left), said=said)


def gone_already(device: Device) -> Facts:
    """A MIG device that is not there was taken apart before, if its GPU is there and holds no half of it."""
    parent = device.attribute("parentUUID")
    for gpu in nvidia.gpus():
        if gpu.uuid == parent:
            known = {
                (mig.findtext("gpu_instance_id") or "").strip() for mig in gpu.whole.iterfind("mig_devices/mig_device")
            }
            halves = [name for name in instances(gpu.whole) if name not in known]
            return Facts(True, left=tuple(halves), note="was gone already")
    return Facts(seen=False)


def mig(whole: ET.Element, *arguments: str) -> str:
    """What `nvidia-smi mig` said; its status does not count, since "nothing to destroy" is a failure to it."""
    ran = run_tool(["nvidia-smi", "mig", "-i", _uuid(whole), *arguments], SECONDS)
    return f"{ran.out} {ran.err} " if ran.status else ""


def instances(whole: ET.Element) -> list[str]:
    """Ids of the GPU instances that a GPU has now, also of those without a compute instance."""
    ran = run_tool(["nvidia-smi", "mig", "-i", _uuid(whole), "-lgi"], SECONDS)
    text = f"{ran.out} {ran.err}"
    found = ROW.findall(ran.out)
    if not found and "No GPU instances found" not in text:
        raise CannotJudge(f"nvidia-smi mig -lgi is not understood: {text}")
    return found


def _uuid(whole: ET.Element) -> str:
    return (whole.findtext("uuid") or "").strip()


def judge(context: Context, device: Device, facts: Facts) -> Verdict:
    """At fault: whatever is in use, or left."""
    if not facts.seen:
        return Verdict([f"nvidia-smi sees neither {device.id} nor its GPU"])
    if facts.holders:
        return Verdict([f"in use by {', '.join(facts.holders)}; nothing was destroyed"])
    if facts.left:
        return Verdict(
            [f"GPU instance {', '.join(facts.left)} is left: {' '.join(facts.said.split())[:200] or 'half made'}"]
        )
    return Verdict(notes=[facts.note] if facts.note else [])


CHECK = Check(
    says="MIG devices are taken apart",
    accepts=nvidia.may_be_gpu,
    wants="NVIDIA GPU",
    observe=observe,
    judge=judge,
    healthy=lambda context, device: Facts(True),
    broken=lambda context, device: Facts(True, left=("7",), said="In use by another client"),
    phases=("cleanup",),
)

if __name__ == "__main__":
    run(CHECK)
