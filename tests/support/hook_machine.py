"""A machine for hooks: fake vendor tools on a PATH of their own, a small sysfs, a fake libcuda.

Comes in: what the tools are to say. Goes out: how a hook's script, run as its container would run it, ended.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from tests.support.hooks import SCRIPTS

TOOLS = Path(__file__).parent / "fake_tools"
Obj = dict[str, Any]
FINE = {
    "gpu_recovery_action": "None",
    "ecc_mode/current_ecc": "Enabled",
    "mig_mode/current_mig": "Enabled",
    "remapped_rows/remapped_row_pending": "No",
    "remapped_rows/remapped_row_failure": "No",
}


def gpu(index: int, used: int | str = 4, facts: Obj | None = None, **more: Any) -> Obj:
    """A GPU of 80 GiB as the fake nvidia-smi knows it; `facts` by their path in its XML."""
    return {
        "uuid": f"GPU-{index}",
        "bus": f"00000000:{index:02X}:00.0",
        "total": 81920,
        "used": used if isinstance(used, str) else f"{used} MiB",
        "facts": {**FINE, **(facts or {})},
        "migs": [],
        "instances": [],
        **more,
    }


def gpu_device(index: int, **more: Any) -> Obj:
    """The same GPU as an entry of ADJOIN_DEVICES."""
    return {
        "request": "gpu",
        "name": "gpu",
        "driver": "gpu.nvidia.com",
        "pool": "node-a",
        "device": f"gpu-{index}",
        "id": f"GPU-{index}",
        "attributes": {
            "gpu.nvidia.com/uuid": f"GPU-{index}",
            "resource.kubernetes.io/pciBusID": f"0000:{index:02x}:00.0",
            "resource.kubernetes.io/pcieRoot": f"pci0000:{index:02x}",
        },
        "capacity": {"gpu.nvidia.com/memory": "80Gi"},
        **more,
    }


def nic_device(index: int, **more: Any) -> Obj:
    """A NIC on the root complex of the GPU of that index."""
    return {
        "request": "nic",
        "name": "nic",
        "driver": "dra.net",
        "pool": "node-a",
        "device": f"nic-{index}",
        "id": f"0000:{index:02x}:01.0",
        "attributes": {
            "dra.net/rdmaDevice": f"mlx5_{index}",
            "resource.kubernetes.io/pcieRoot": f"pci0000:{index:02x}",
        },
        "capacity": {},
        **more,
    }


@dataclass(frozen=True)
class Ended:
    """How a hook ended: what Adjoin sees of it."""

    status: int
    message: str
    failed: list[str] | None
    text: str


@dataclass
class Machine:
    """Tools, sysfs and state under one folder."""

    folder: Path
    env: dict[str, str] = field(default_factory=dict)

    def tool(self, name: str) -> None:
        """Puts a fake tool on the PATH."""
        path = self.folder / "bin" / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(f'#!/bin/sh\nexec {sys.executable} -S -E {TOOLS / name.replace("-", "_")}.py "$@"\n')
        path.chmod(0o755)

    def state(self, **state: Any) -> None:
        """What the tools say."""
        (self.folder / "machine.json").write_text(json.dumps(state))

    def now(self) -> Obj:
        """What the tools would say now."""
        found: Obj = json.loads((self.folder / "machine.json").read_text())
        return found

    def rdma(self, name: str, address: str, state: str = "4: ACTIVE", rate: str = "400 Gb/sec (4X NDR)") -> None:
        """An RDMA device in sysfs."""
        device = self.folder / "sys" / "class" / "infiniband" / name
        (device / "ports" / "1").mkdir(parents=True)
        pci = self.folder / "sys" / "devices" / address
        pci.mkdir(parents=True)
        (device / "device").symlink_to(pci)
        for key, value in (("state", state), ("phys_state", "5: LinkUp"), ("rate", rate)):
            (device / "ports" / "1" / key).write_text(f"{value}\n")

    def cuda(self, **behaviour: str) -> None:
        """A libcuda.so.1, with its environment."""
        compiler = shutil.which("cc") or shutil.which("gcc")
        if compiler is None:
            pytest.skip("needs a C compiler, for a libcuda that is none")
        library = self.folder / "lib" / "libcuda.so.1"
        library.parent.mkdir()
        subprocess.run([compiler, "-shared", "-fPIC", "-o", str(library), str(TOOLS / "libcuda.c")], check=True)
        self.env |= {"LD_LIBRARY_PATH": str(library.parent)}
        self.env |= {f"FAKE_CUDA_{key.upper()}": value for key, value in behaviour.items()}

    def run(self, script: str, devices: Any, phase: str = "init", args: tuple[str, ...] = (), **env: str) -> Ended:
        """Runs a script with these devices; `devices` may be any text."""
        log = self.folder / "termination-log"
        log.unlink(missing_ok=True)
        done = subprocess.run(
            [
                *(sys.executable, "-B", str(SCRIPTS / f"{script}.py")),
                *("--termination-log", str(log), "--sysfs", str(self.folder / "sys"), *args),
            ],
            env={
                "PATH": str(self.folder / "bin"),
                "FAKE_MACHINE": str(self.folder / "machine.json"),
                "ADJOIN_PHASE": phase,
                "ADJOIN_CLAIM_UID": "uid-1",
                "ADJOIN_DEVICES": devices if isinstance(devices, str) else json.dumps(devices),
                **self.env,
                **env,
            },
            cwd=self.folder,
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )
        assert log.exists(), done.stderr
        text = log.read_text()
        assert len(text.encode()) <= 4096
        said = json.loads(text)
        assert done.stdout.strip() == text
        return Ended(done.returncode, said["message"], said.get("failed"), text)
