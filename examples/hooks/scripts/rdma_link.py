#!/usr/bin/env python3
"""Hook for NICs, init or cleanup: the RDMA device is there, its port is up, and as fast as it should be.

As a cleanup hook it proves that the device came back from the pod's network namespace. Reads sysfs, writes nothing:
/sys/class/infiniband/<device>/ports/<port>/{state,phys_state,rate,link_layer} (the kernel's
Documentation/ABI/stable/sysfs-class-infiniband).
"""

from __future__ import annotations

from dataclasses import dataclass

import rdma
from hook import Check, Context, Device, Parameter, Verdict, run


@dataclass(frozen=True)
class Facts:
    """`rdma_device` is "" when there is none of that name or address; `state` is the kernel's word, such as ACTIVE."""

    rdma_device: str = ""
    state: str = ""
    physical: str = ""
    rate_gbps: float | None = None


def observe(context: Context) -> list[Facts]:
    """Reads sysfs."""
    facts = []
    for name in rdma.names(context):
        port = rdma.port(context, name, context.parameters["rdma-port"]) if name else {}
        facts.append(
            Facts(
                rdma_device=name,
                # "4: ACTIVE"
                state=port.get("state", "").rpartition(":")[2].strip(),
                # "5: LinkUp"
                physical=port.get("phys_state", "").rpartition(":")[2].strip(),
                rate_gbps=rdma.gbps(port.get("rate", "")),
            )
        )
    return facts


def judge(context: Context, device: Device, facts: Facts) -> Verdict:
    """At fault: not there, port down, or slower than `rdma-gbps` (0: any rate will do)."""
    if not facts.rdma_device:
        return Verdict([f"no RDMA device for {device.id}"])
    if not facts.state:
        return Verdict([f"{facts.rdma_device} has no port {context.parameters['rdma-port']}"])
    verdict, wanted = Verdict(), float(context.parameters["rdma-gbps"])
    if facts.state != "ACTIVE":
        verdict.faults.append(f"port of {facts.rdma_device} is {facts.state} ({facts.physical or 'link unknown'})")
    if facts.rate_gbps is None:
        verdict.faults.append(f"{facts.rdma_device} does not tell its rate")
    elif facts.rate_gbps < wanted:
        verdict.faults.append(f"{facts.rdma_device} runs at {facts.rate_gbps:g} Gb/s instead of {wanted:g}")
    else:
        verdict.notes.append(f"{facts.rate_gbps:g} Gb/s")
    return verdict


CHECK = Check(
    says="RDMA links are up",
    accepts=rdma.is_nic,
    wants="RDMA NIC",
    observe=observe,
    judge=judge,
    healthy=lambda context, device: Facts("simulated", "ACTIVE", "LinkUp", float(context.parameters["rdma-gbps"])),
    broken=lambda context, device: Facts("simulated", "DOWN", "Polling", 0.0),
    parameters={"rdma-gbps": Parameter("0", r"\d{1,5}"), "rdma-port": Parameter("1", r"[1-9]\d?")},
)

if __name__ == "__main__":
    run(CHECK)
