#!/usr/bin/env python3
"""Init and cleanup hook: makes MIG partitions at the places that Adjoin chose, and takes them apart.

A part of a card: its GPU instance with one compute instance, at its start, is there (init) or gone (cleanup; of a fixed
layout it stays). A whole card: MIG is on and the layout is there, and nothing beside it (init), or all is gone and MIG
is off (cleanup). Idempotent: what is there already is taken, half of it is completed. What counts is what is read back.
Nothing that is in use is touched, and of a part never anything but that part.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import nvidia
from hook import CannotJudge, Check, Context, Device, Verdict, run, run_tool

SECONDS = 60
ROW = re.compile(r"\|\s+\d+\s+MIG\s+(\S+)\s+(\d+)\s+(\d+)\s+(\d+):(\d+)\s+\|")
"""`|   0  MIG 1g.5gb          19       13          6:1     |`: profile, its number, instance, start and size."""
PROFILE = re.compile(r"\d+g\.\d+gb(\+[a-z.]+)*")


class Instance(NamedTuple):
    """A GPU instance."""

    profile: str
    name: str
    start: int


@dataclass(frozen=True)
class Facts:
    """`there` and `wanted` are what was read back and what should be; `said` what nvidia-smi said to changes."""

    seen: bool
    mode: str = ""
    there: tuple[Instance, ...] = ()
    holders: tuple[str, ...] = ()
    uuid: str = ""
    said: str = ""
    wanted: tuple[tuple[str, int], ...] = field(default=())
    gone: bool = False


def observe(context: Context) -> list[Facts]:
    """Changes and reads back, device by device: one that is stuck does not keep the others."""
    work = make if context.phase == "init" else unmake
    return [work(device) for device in context.devices]


def make(device: Device) -> Facts:
    """Init. Raises CannotJudge: nvidia-smi is missing, hangs, or prints what is not understood."""
    gpu = card(device)
    if gpu is None:
        return Facts(seen=False)
    said = ""
    if gpu.text("mig_mode/current_mig") != "Enabled":
        if device.part and not alone(gpu):
            return Facts(True, "Disabled", holders=tuple(gpu.holders()), wanted=wanted(device))
        said += changed(["nvidia-smi", "-i", gpu.uuid, "-mig", "1"])
    target, there = wanted(device), instances(gpu.uuid)
    if not device.part and "layout" in share(device):
        for one in there:
            if (one.profile, one.start) not in target:
                said += destroy(gpu.uuid, one.name)
    for profile, start in target:
        if all((one.profile, one.start) != (profile, start) for one in instances(gpu.uuid)):
            said += changed(["nvidia-smi", "mig", "-i", gpu.uuid, "-cgi", f"{profile}:{start}"])
    for one in instances(gpu.uuid):
        if (one.profile, one.start) in target and not uuid_of(gpu.uuid, one.name):
            # The GPU instance stood alone: whoever made it died before its compute instance.
            said += changed(["nvidia-smi", "mig", "-i", gpu.uuid, "-gi", one.name, "-cci"])
    return read_back(device, gpu.uuid, said)


def unmake(device: Device) -> Facts:
    """Cleanup. Raises CannotJudge likewise."""
    gpu = card(device)
    if gpu is None:
        return Facts(seen=False)
    if gpu.text("mig_mode/current_mig") != "Enabled":
        return Facts(True, "Disabled", gone=True)
    mine = [one for one in instances(gpu.uuid) if not device.part or (one.profile, one.start) in wanted(device)]
    holders = held_by(gpu, {one.name for one in mine})
    if holders:
        return Facts(True, "Enabled", tuple(mine), tuple(holders))
    if device.part and "layout" in share(device):
        # Of a fixed layout partitions stay: the next one finds it clean.
        return Facts(True, "Enabled", gone=True)
    said = "".join(destroy(gpu.uuid, one.name) for one in mine)
    left = [one for one in instances(gpu.uuid) if one in mine]
    if not device.part and not left:
        said += changed(["nvidia-smi", "-i", gpu.uuid, "-mig", "0"])
    return Facts(True, "Enabled", tuple(left), said=said, gone=not left)


def read_back(device: Device, uuid: str, said: str) -> Facts:
    """What is there now."""
    gpu = card(device)
    if gpu is None:
        return Facts(seen=False)
    there = instances(uuid)
    part = next((one for one in there if (one.profile, one.start) in wanted(device)), None) if device.part else None
    found = uuid_of(uuid, part.name) if part is not None else ""
    mode = gpu.text("mig_mode/current_mig") or "not supported"
    return Facts(True, mode, tuple(there), uuid=found, said=said, wanted=wanted(device))


def share(device: Device) -> dict[str, Any]:
    """What Adjoin says of the division. Raises CannotJudge where it is another mode's."""
    found = device.share or {}
    if found.get("mode") != "Partitioned":
        raise CannotJudge(
            f"{device.name} is not divided into partitions: name this hook's devices, or use another pool"
        )
    return found


def wanted(device: Device) -> tuple[tuple[str, int], ...]:
    """Profile and start of the part, or of the whole layout. Raises CannotJudge for what is neither."""
    told = share(device)
    listed = [told] if device.part else told.get("layout", [])
    found = tuple((str(each.get("profile")), int(each.get("start", -1))) for each in listed)
    for profile, start in found:
        if not PROFILE.fullmatch(profile) or not 0 <= start < 64:
            raise CannotJudge(f"{device.name}: {profile!r} at {start} is no partition")
    return found


def card(device: Device) -> nvidia.Gpu | None:
    """The whole card as nvidia-smi sees it."""
    (gpu,) = nvidia.look([device])
    return gpu


def alone(gpu: nvidia.Gpu) -> bool:
    """Whether nobody is on the card."""
    return not gpu.holders()


def held_by(gpu: nvidia.Gpu, names: set[str]) -> list[str]:
    """Processes in these GPU instances."""
    found = []
    for process in gpu.whole.iterfind("processes/process_info"):
        if (process.findtext("gpu_instance_id") or "").strip() in names:
            name = (process.findtext("process_name") or "").strip()
            found.append(f"process {(process.findtext('pid') or '?').strip()}{f' ({name})' if name else ''}")
    return found


def instances(uuid: str) -> list[Instance]:
    """GPU instances that a card has now, also those without a compute instance."""
    ran = run_tool(["nvidia-smi", "mig", "-i", uuid, "-lgi"], SECONDS)
    found = [Instance(profile, name, int(start)) for profile, _, name, start, _ in ROW.findall(ran.out)]
    text = f"{ran.out} {ran.err}"
    if not found and not re.search("No GPU instances found|No MIG-enabled devices found", text):
        raise CannotJudge(f"nvidia-smi mig -lgi is not understood: {text}")
    return found


def uuid_of(uuid: str, name: str) -> str:
    """The MIG device in a GPU instance, "" while it has no compute instance."""
    for found, mig in nvidia.mig_devices(nvidia.gpus()).items():
        if mig.uuid and (mig.whole.findtext("uuid") or "").strip() == uuid and mig.instances()[0] == name:
            return found
    return ""


def destroy(uuid: str, name: str) -> str:
    """Takes a GPU instance apart; what nvidia-smi said where it would not."""
    said = changed(["nvidia-smi", "mig", "-i", uuid, "-dci", "-gi", name])
    return said + changed(["nvidia-smi", "mig", "-i", uuid, "-dgi", "-gi", name])


def changed(argv: list[str]) -> str:
    """What a change said; its status does not count: what is there is read back."""
    ran = run_tool(argv, SECONDS)
    return f"{ran.out} {ran.err} " if ran.status else ""


def judge(context: Context, device: Device, facts: Facts) -> Verdict:
    """Right is only what was read back."""
    if not facts.seen:
        return Verdict([f"nvidia-smi does not see {device.id}"])
    said = " ".join(facts.said.split())[:200]
    if facts.holders:
        return Verdict([f"in use by {', '.join(facts.holders)}; nothing was changed"])
    if context.phase == "cleanup":
        left = ", ".join(f"{one.profile} at {one.start}" for one in facts.there)
        return Verdict() if facts.gone else Verdict([f"{left} is left: {said or 'nobody says why'}"])
    if facts.mode != "Enabled":
        return Verdict([f"MIG is {facts.mode}: {said or 'the card may need a reset'}"])
    there = {(one.profile, one.start) for one in facts.there}
    missing = [f"{profile} at {start}" for profile, start in facts.wanted if (profile, start) not in there]
    if missing:
        return Verdict([f"{', '.join(missing)} was not made: {said or 'nobody says why'}"])
    if device.part and not facts.uuid:
        return Verdict([f"the partition has no compute instance: {said or 'nobody says why'}"])
    more = there - set(facts.wanted)
    if more and not device.part and "layout" in share(device):
        return Verdict([f"{sorted(more)} is there beside the layout: {said or 'nobody says why'}"])
    return Verdict()


def report(context: Context, device: Device, facts: Facts) -> dict[str, Any]:
    """What was read back of a part."""
    ((profile, start),) = facts.wanted
    return {"id": facts.uuid, "profile": profile, "start": start}


def simulated(context: Context, device: Device) -> Facts:
    """What a card says on which all went well."""
    made = tuple(Instance(profile, str(at), start) for at, (profile, start) in enumerate(wanted(device)))
    uuid = f"MIG-simulated-{device.id}-{made[0].start}" if device.part else ""
    return Facts(True, "Enabled", made, uuid=uuid, wanted=wanted(device), gone=True)


CHECK = Check(
    says="Partitions are as they should be",
    accepts=nvidia.may_be_gpu,
    wants="NVIDIA GPU",
    observe=observe,
    judge=judge,
    healthy=simulated,
    broken=lambda context, device: Facts(True, "Enabled", holders=("process 4242 (simulated)",)),
    report=report,
)

if __name__ == "__main__":
    run(CHECK)
