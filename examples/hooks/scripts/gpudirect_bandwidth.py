#!/usr/bin/env python3
"""Init hook: each GPU and the NIC that was allocated beside it move data directly, and fast enough.

perftest's `ib_write_bw` writes from the GPU's memory to itself through the NIC, which sends to its own port: the path
between GPU and NIC is measured in both directions, the network is not. GPUs and NICs are paired by pcieRoot, else by
numaNode, else as listed. Needs a NIC with RC queue pairs (InfiniBand or RoCE, not EFA).
"""

from __future__ import annotations

import re
import socket
import subprocess
import time
from dataclasses import dataclass
from typing import Sequence

import nvidia
import rdma
from hook import CannotJudge, Check, Context, Device, Parameter, Verdict, run, start_tool

MESSAGE_BYTES, MESSAGES = 1 << 20, 4000
"""4 GB a pair: below a second for a pair that is well, some seconds for one that goes through the other socket."""

SECONDS = 30
ATTEMPTS = 10
"""The client finds nobody until the server has made its queue pairs; they try once a second."""

HEADER = re.compile(r"#bytes\s+#iterations\s+BW peak\[Gb/sec\]\s+BW average\[Gb/sec\]")
ROW = re.compile(r"^\s*\d+\s+\d+\s+[\d.]+\s+([\d.]+)", re.MULTILINE)


@dataclass(frozen=True)
class Measured:
    """One pair. `gbps` is None when nothing was measured, `error` then says why; `absent` is who was not there."""

    gpu: Device
    nic: Device
    gbps: float | None
    port_gbps: float
    error: str = ""
    absent: Device | None = None


Facts = tuple  # of Measured: all pairs of the set, the same for each device


def pairs(devices: Sequence[Device]) -> list[tuple[Device, Device]]:
    """Every GPU with its nearest NIC, every NIC that is left with its nearest GPU; whoever has least pairs goes first.

    Raises:
        CannotJudge: There are not both.
    """
    gpus = [device for device in devices if nvidia.is_gpu(device)]
    nics = [device for device in devices if not nvidia.is_gpu(device)]
    if not gpus or not nics:
        raise CannotJudge(f"needs GPUs and RDMA NICs, has {len(gpus)} and {len(nics)}")
    found: list[tuple[Device, Device]] = []
    for gpu in gpus:
        found.append((gpu, _nearest(gpu, nics, [nic for _, nic in found])))
    for nic in nics:
        if all(nic != other for _, other in found):
            found.append((_nearest(nic, gpus, [gpu for gpu, _ in found]), nic))
    return found


def _nearest(device: Device, others: Sequence[Device], used: Sequence[Device]) -> Device:
    def distance(other: Device) -> tuple[int, int]:
        near = [bool(_places(device, name) & _places(other, name)) for name in ("pcieRoot", "numaNode")]
        return (near.index(True) if True in near else len(near)), used.count(other)

    return min(others, key=distance)


def _places(device: Device, name: str) -> set[int | str]:
    """Values of an attribute that may be a list. Unknown is never equal to unknown, and -1 is Linux's unknown."""
    value = device.attribute(name)
    return {v for v in (value if isinstance(value, list) else [value]) if isinstance(v, (int, str))} - {-1, ""}


def observe(context: Context) -> list[Facts]:
    """Measures one pair after the other: together they would take each other's bandwidth.

    Raises:
        CannotJudge: perftest is missing or built without CUDA, or a device is not there.
    """
    chosen = pairs(context.devices)
    gpus = [device for device in context.devices if nvidia.is_gpu(device)]
    nics = [device for device in context.devices if device not in gpus]
    seen, names = nvidia.look(gpus), rdma.names(Context("", "", nics, {}, context.sysfs))
    measured = []
    for gpu, nic in chosen:
        found, name = seen[gpus.index(gpu)], names[nics.index(nic)]
        if found is None or not name:
            absent = gpu if found is None else nic
            measured.append(Measured(gpu, nic, None, 0, f"{absent.id} is not there", absent))
            continue
        rate = rdma.gbps(rdma.port(context, name, "1").get("rate", ""))
        if rate is None:
            raise CannotJudge(f"{name} does not tell its rate")
        gbps, error = measure(name, found.uuid, context.parameters["gpudirect-path"])
        measured.append(Measured(gpu, nic, gbps, rate, error))
    return [tuple(measured)] * len(context.devices)


def measure(rdma_device: str, uuid: str, path: str) -> tuple[float | None, str]:
    """Gb/s, or None and what perftest said."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    argv = ["ib_write_bw", "-d", rdma_device, "-p", str(port), "-F", "--report_gbits", "--use_cuda=0"]
    argv += ["-s", str(MESSAGE_BYTES), "-n", str(MESSAGES), *(["--use_cuda_dmabuf"] if path == "dmabuf" else [])]
    # The one visible GPU is CUDA's device 0, so that no index of the node is ever used.
    env = {"CUDA_VISIBLE_DEVICES": uuid}
    server = None
    try:
        server = start_tool(argv, env)
        for _ in range(ATTEMPTS):
            client = start_tool([*argv, "127.0.0.1"], env)
            try:
                out, err = client.communicate(timeout=SECONDS)
            except subprocess.TimeoutExpired:
                client.kill()
                return None, f"no result within {SECONDS} s"
            if client.returncode == 0:
                return read(out)
            if "unrecognized option" in err or "nvalid option" in err:
                raise CannotJudge(f"this ib_write_bw cannot use GPU memory: {err}")
            if server.poll() is not None:
                said = server.communicate(timeout=SECONDS)
                return None, " ".join(f"{said[1] or said[0]} {err or out}".split())[-200:]
            time.sleep(1)
        return None, " ".join((err or out).split())[-200:]
    except OSError as error:
        raise CannotJudge(f"ib_write_bw cannot be run: {error.strerror}") from error
    finally:
        if server is not None:
            server.kill()


def read(out: str) -> tuple[float | None, str]:
    """The average of ib_write_bw's table."""
    header = HEADER.search(out)
    row = ROW.search(out, header.end()) if header else None
    if row is None:
        raise CannotJudge("ib_write_bw printed no table with BW average[Gb/sec]")
    return float(row.group(1)), ""


def judge(context: Context, device: Device, facts: Facts) -> Verdict:
    """A pair below `gpudirect-percent` of the port's rate is at fault: both of its devices, but for one that did well
    in another pair, unless that holds for both."""
    least = int(context.parameters["gpudirect-percent"]) / 100

    def well(pair: Measured) -> bool:
        return pair.gbps is not None and pair.gbps > 0 and pair.gbps >= least * pair.port_gbps

    def proven(member: Device) -> bool:
        return any(well(pair) for pair in facts if member in (pair.gpu, pair.nic))

    verdict = Verdict()
    for pair in facts:
        if device not in (pair.gpu, pair.nic):
            continue
        other = pair.nic if device == pair.gpu else pair.gpu
        speed = f"{pair.gbps:g} of {pair.port_gbps:g} Gb/s with {other.name}" if pair.gbps is not None else pair.error
        if well(pair):
            verdict.notes.append(speed)
        elif pair.absent in (None, device) and (not proven(device) or proven(other)):
            verdict.faults.append(speed)
    return verdict


def _simulated(context: Context, share: float) -> Facts:
    return tuple(Measured(gpu, nic, 100 * share, 100) for gpu, nic in pairs(context.devices))


def _broken(context: Context, device: Device) -> Facts:
    return tuple(
        Measured(gpu, nic, None if device in (gpu, nic) else 100, 100, "simulated fault")
        for gpu, nic in pairs(context.devices)
    )


CHECK = Check(
    says="GPUs and NICs move data directly",
    accepts=lambda device: nvidia.is_gpu(device) or rdma.is_nic(device),
    wants="NVIDIA GPU with a uuid, nor RDMA NIC",
    observe=observe,
    judge=judge,
    healthy=lambda context, device: _simulated(context, 1),
    broken=_broken,
    parameters={
        # A pair that goes through the other socket gets a half and less of what a near pair gets (11 of 23 GB/s:
        # github.com/linux-rdma/perftest issue 241).
        "gpudirect-percent": Parameter("50", r"[1-9]\d?|100"),
        # peermem: module nvidia-peermem. dmabuf: open kernel modules 515, CUDA 11.7 (perftest's README).
        "gpudirect-path": Parameter("peermem", "peermem|dmabuf"),
    },
    phases=("init",),
)

if __name__ == "__main__":
    run(CHECK)
