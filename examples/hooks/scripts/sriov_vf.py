#!/usr/bin/env python3
"""Init and cleanup hook: makes the virtual functions of a NIC, and names the one that a claim got.

A whole NIC: it has as many functions as the share says (init), or none (cleanup). A part: its function is there, and
its PCI address is told (init) or nothing of it is changed (cleanup: the others of the NIC are in use). The number is
changed only on a whole NIC, or on one that has no functions yet. What counts is what the kernel says afterwards.

Needs sysfs of the node, writable: `--sysfs /host/sys`.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass

from hook import CannotJudge, Check, Context, Device, Verdict, run

ADDRESS = re.compile(r"[0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")


@dataclass(frozen=True)
class Facts:
    """`number` of functions there are, `most` that there may be, `function` the address of the claim's."""

    seen: bool
    number: int = 0
    most: int = 0
    function: str = ""
    said: str = ""


def address(device: Device) -> str:
    """The NIC's PCI address, "" where nothing says it."""
    named = (device.id, device.attribute("pciBusID"), device.attribute("pciAddress"))
    return next((text.lower() for text in named if isinstance(text, str) and ADDRESS.fullmatch(text.lower())), "")


def observe(context: Context) -> list[Facts]:
    """Changes and reads back, device by device."""
    return [work(context, device) for device in context.devices]


def work(context: Context, device: Device) -> Facts:
    """One NIC, or one function of it. Raises CannotJudge: sysfs is not there, or says what is not understood."""
    folder = os.path.join(context.sysfs, "bus", "pci", "devices", address(device))
    if not os.path.isdir(os.path.join(context.sysfs, "bus", "pci")):
        raise CannotJudge(f"{context.sysfs} is no sysfs with PCI devices")
    if not os.path.isdir(folder):
        return Facts(seen=False)
    wanted, said = functions(device) if context.phase == "init" else 0, ""
    now = number(folder, "sriov_numvfs")
    if now != wanted and not (device.part and (now or context.phase == "cleanup")):
        # The kernel changes the number from 0 or to 0 only.
        said = write(folder, 0) if now else ""
        said = said or (write(folder, wanted) if wanted else "")
    return Facts(True, number(folder, "sriov_numvfs"), number(folder, "sriov_totalvfs"), function(folder, device), said)


def functions(device: Device) -> int:
    """How many functions the share says. Raises CannotJudge where it is another mode's."""
    told = device.share or {}
    if told.get("mode") != "VirtualFunctions" or not isinstance(told.get("of"), int):
        raise CannotJudge(f"{device.name} is not divided into functions: name this hook's devices, or use another pool")
    return int(told["of"])


def function(folder: str, device: Device) -> str:
    """Address of the claim's function, "" where it is not there, or none is meant."""
    place = (device.share or {}).get("vf")
    if not device.part or not isinstance(place, int):
        return ""
    try:
        found = os.path.basename(os.readlink(os.path.join(folder, f"virtfn{place}")))
    except OSError:
        return ""
    return found if ADDRESS.fullmatch(found) else ""


def number(folder: str, name: str) -> int:
    """A number of sysfs. Raises CannotJudge."""
    try:
        with open(os.path.join(folder, name), encoding="ascii") as file:
            return int(file.read().strip())
    except (OSError, ValueError) as error:
        raise CannotJudge(f"{name} cannot be read: {error}") from error


def write(folder: str, count: int) -> str:
    """Sets the number of functions; what the kernel said where it would not."""
    try:
        with open(os.path.join(folder, "sriov_numvfs"), "w", encoding="ascii") as file:
            file.write(str(count))
    except OSError as error:
        return f"{count} functions: {error.strerror}"
    return ""


def judge(context: Context, device: Device, facts: Facts) -> Verdict:
    """Right is only what was read back."""
    if not facts.seen:
        return Verdict([f"there is no PCI device {address(device)}"])
    if context.phase == "cleanup":
        if device.part:
            return Verdict()
        return Verdict([f"{facts.number} functions are left: {facts.said}"]) if facts.number else Verdict()
    wanted = functions(device)
    if facts.number != wanted:
        why = facts.said or (f"it can have {facts.most}" if facts.most < wanted else "others use it")
        return Verdict([f"it has {facts.number} functions where {wanted} are asked: {why}"])
    if device.part and not facts.function:
        return Verdict([f"function {(device.share or {}).get('vf')} is not there"])
    return Verdict()


def simulated(context: Context, device: Device) -> Facts:
    """What a NIC says on which all went well."""
    wanted = functions(device)
    made = f"{address(device).rpartition(':')[0]}:1f.{(device.share or {}).get('vf', 0) % 8}" if device.part else ""
    return Facts(True, wanted if context.phase == "init" else 0, wanted, made)


CHECK = Check(
    says="Functions are as they should be",
    accepts=lambda device: bool(address(device)),
    wants="NIC with a PCI address",
    observe=observe,
    judge=judge,
    healthy=simulated,
    broken=lambda context, device: Facts(seen=False),
    report=lambda context, device, facts: {"id": facts.function, "vf": (device.share or {}).get("vf")},
)

if __name__ == "__main__":
    run(CHECK)
