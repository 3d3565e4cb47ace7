"""What `nvidia-smi` says of the devices of a hook. Asks only, changes nothing.

Names of elements are those of `nvidia-smi -q -x` (nvsmi_device_v12.dtd). GPUs are found by uuid, else by PCI address,
never by index. Only uuids that the tool itself printed are ever given to a tool.
"""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from dataclasses import dataclass
from typing import Sequence

from hook import CannotJudge, Device, run_tool

SECONDS = 60
"""A healthy answer takes below a second a GPU, without persistence mode some seconds; a lost GPU may hang for ever."""

ERROR = re.compile(r"unknown error|requires reset|err!|gpu is lost", re.IGNORECASE)
"""What nvidia-smi prints in place of a value that the driver failed to give. N/A is not among them: not supported."""


@dataclass(frozen=True)
class Gpu:
    """A GPU, or a MIG device of one. `mig` is its element within that of the GPU."""

    uuid: str
    whole: ET.Element
    mig: ET.Element | None = None

    def text(self, path: str) -> str:
        """A fact of the whole GPU; "" when nvidia-smi does not tell it."""
        value = (self.whole.findtext(path) or "").strip()
        return "" if value in ("N/A", "[N/A]", "None Found") else value

    def number(self, path: str) -> int | None:
        """A number of the whole GPU without its unit (memory is in MiB)."""
        return number(self.text(path))

    def memory_used_mib(self) -> int | None:
        """Of the MIG device, if it is one."""
        part = self.whole if self.mig is None else self.mig
        return number(part.findtext("fb_memory_usage/used") or "")

    def holders(self) -> list[str]:
        """Processes that use it, as "process 41394 (python)".

        Process ids are those of the node. Names are known only in a pod with hostPID: the driver does not know of
        namespaces (github.com/NVIDIA/nvidia-docker issues 179 and 1483).
        """
        found = []
        for process in self.whole.iterfind("processes/process_info"):
            instances = [(process.findtext(key) or "").strip() for key in ("gpu_instance_id", "compute_instance_id")]
            if self.mig is not None and instances != list(self.instances()):
                continue
            name = (process.findtext("process_name") or "").strip()
            found.append(f"process {(process.findtext('pid') or '?').strip()}{f' ({name})' if name else ''}")
        return found

    def instances(self) -> tuple[str, str]:
        """GPU instance and compute instance of a MIG device."""
        assert self.mig is not None
        return (self.mig.findtext("gpu_instance_id") or "").strip(), (
            self.mig.findtext("compute_instance_id") or ""
        ).strip()

    def bus_address(self) -> str:
        """As Kubernetes writes it: 0000:c6:00.0."""
        return bus_address(self.text("pci/pci_bus_id"))


def number(text: str) -> int | None:
    """`40960 MiB` as 40960."""
    found = re.match(r"\s*(\d+)", text)
    return int(found.group(1)) if found else None


def bus_address(text: str) -> str:
    """nvidia-smi writes 00000000:C6:00.0, Linux 0000:c6:00.0; "" for what is no PCI address."""
    found = re.fullmatch(r"(?:0000)?([0-9a-fA-F]{4}):([0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.[0-7])", text.strip())
    return f"{found.group(1)}:{found.group(2)}".lower() if found else ""


def look(devices: Sequence[Device]) -> list[Gpu | None]:
    """Each device as nvidia-smi sees it now; None for one that it does not see.

    Raises:
        CannotJudge: nvidia-smi is missing, hangs or fails.
    """
    whole = gpus()
    migs = mig_devices(whole) if any(_is_mig(device) for device in devices) else {}
    return [_find(device, whole, migs) for device in devices]


def may_be_gpu(device: Device) -> bool:
    """Whether nvidia-smi could know the device, at least by its PCI address."""
    return is_gpu(device) or bool(bus_address(device.id))


def is_gpu(device: Device) -> bool:
    """Whether it is a GPU or MIG device of NVIDIA beyond doubt."""
    return device.driver == "gpu.nvidia.com" or device.id.startswith(("GPU-", "MIG-")) or bool(_uuid(device))


def _is_mig(device: Device) -> bool:
    return (_uuid(device) or device.id).startswith("MIG-") or device.attribute("type") == "mig"


def _uuid(device: Device) -> str:
    uuid = device.attribute("uuid")
    return uuid if isinstance(uuid, str) and uuid.startswith(("GPU-", "MIG-")) else ""


def gpus() -> list[Gpu]:
    """All that nvidia-smi sees, without MIG devices. Raises CannotJudge."""
    ran = run_tool(["nvidia-smi", "-q", "-x"], SECONDS)
    if ran.status != 0 and "<gpu" not in ran.out:
        raise CannotJudge(f"nvidia-smi failed ({ran.status}): {ran.out} {ran.err}")
    try:
        root = ET.fromstring(ran.out)
    except ET.ParseError as error:
        raise CannotJudge(f"nvidia-smi did not answer in XML: {error}") from error
    return [Gpu((gpu.findtext("uuid") or "").strip(), gpu) for gpu in root.iterfind("gpu")]


def _find(device: Device, whole: Sequence[Gpu], migs: dict[str, Gpu]) -> Gpu | None:
    wanted = {device.id, _uuid(device)} - {""}
    if _is_mig(device):
        return next((migs[uuid] for uuid in sorted(wanted) if uuid in migs), None)
    named = any(uuid.startswith("GPU-") for uuid in wanted)
    for gpu in whole:
        # By address only where no uuid is known: another card in the same slot is another device.
        if gpu.uuid in wanted or (not named and gpu.bus_address() and gpu.bus_address() == bus_address(device.id)):
            return gpu
    return None


def mig_devices(whole: Sequence[Gpu]) -> dict[str, Gpu]:
    """MIG devices by uuid. Only `nvidia-smi -L` has their uuids, only the XML has their instances; both count alike."""
    ran = run_tool(["nvidia-smi", "-L"], SECONDS)
    if ran.status != 0:
        raise CannotJudge(f"nvidia-smi -L failed ({ran.status}): {ran.out} {ran.err}")
    by_uuid = {gpu.uuid: gpu for gpu in whole}
    found, current = {}, None
    for line in ran.out.splitlines():
        if gpu_line := re.match(r"GPU \d+: .*\(UUID: (GPU-[\w-]+)\)", line):
            current = by_uuid.get(gpu_line.group(1))
        elif current and (mig_line := re.match(r"\s+MIG .*Device\s+(\d+): \(UUID: (MIG-[\w/-]+)\)", line)):
            for mig in current.whole.iterfind("mig_devices/mig_device"):
                if (mig.findtext("index") or "").strip() == mig_line.group(1):
                    found[mig_line.group(2)] = Gpu(mig_line.group(2), current.whole, mig)
    return found
