"""Where sysfs keeps the RDMA device of a NIC, and what its port says. Reads only.

A name from outside is compared with what the kernel lists; no path is made of it.
"""

from __future__ import annotations

import os
import re

from hook import CannotJudge, Context, Device

ADDRESS = re.compile(r"[0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")


def is_nic(device: Device) -> bool:
    """Whether it has an RDMA device's name or a PCI address, and is no GPU."""
    return not device.id.startswith(("GPU-", "MIG-")) and bool(_name(device) or _address(device))


def names(context: Context) -> list[str]:
    """For each device the kernel's name of its RDMA device (mlx5_0, rdmap16s27); "" where there is none.

    Raises:
        CannotJudge: There is no sysfs, or no RDMA in it.
    """
    present = _present(context)
    found = []
    for device in context.devices:
        if _name(device) in present:
            found.append(_name(device))
        else:
            found.append(next((name for name, address in present.items() if address == _address(device) != ""), ""))
    return found


def port(context: Context, name: str, number: str) -> dict[str, str]:
    """The files of one port of a device that `names` gave; empty when there is no such port."""
    folder = os.path.join(context.sysfs, "class", "infiniband", name, "ports", number)
    values = {}
    for key in ("state", "phys_state", "rate", "link_layer"):
        try:
            with open(os.path.join(folder, key), encoding="ascii", errors="replace") as file:
                values[key] = file.read(256).strip()
        except OSError:
            continue
    return values


def gbps(rate: str) -> float | None:
    """`100 Gb/sec (4X EDR)` as 100.0."""
    found = re.match(r"\s*(\d+(?:\.\d+)?) Gb/sec", rate)
    return float(found.group(1)) if found else None


def _present(context: Context) -> dict[str, str]:
    """PCI addresses of the RDMA devices that this container sees, by name."""
    folder = os.path.join(context.sysfs, "class", "infiniband")
    try:
        listed = sorted(os.listdir(folder))
    except OSError as error:
        raise CannotJudge(f"{folder}: {error.strerror}; does the node have RDMA drivers?") from error
    return {name: os.path.basename(os.path.realpath(os.path.join(folder, name, "device"))) for name in listed}


def _name(device: Device) -> str:
    name = device.attribute("rdmaDevice")
    return name if isinstance(name, str) else ""


def _address(device: Device) -> str:
    for value in (device.attribute("pciBusID"), device.attribute("pciAddress"), device.id):
        if isinstance(value, str) and ADDRESS.fullmatch(value.lower()):
            return value.lower()
    return ""
