"""Writes the machines that stand beside the examples, so that these can be tried without a cluster.

`python -m tests.support.machines` writes `examples/<scenario>/machines/…` from the hardware models; a test keeps files
and models equal.
"""

from __future__ import annotations

from pathlib import Path

import yaml
from tests.support import hardware

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"

MACHINES: dict[str, list[hardware.Obj]] = {
    "quickstart": hardware.fleet(hardware.p4d, 1, "p4d"),
    "gpu-only": hardware.fleet(hardware.p4d, 1, "p4d"),
    "statefulset": hardware.fleet(hardware.p4d, 1, "p4d"),
    "indexed-job": hardware.fleet(hardware.p4d, 1, "p4d"),
    "preferred-locality": hardware.fleet(hardware.gb200, 1, "gb200"),
    "p5-8gpu-32nic": hardware.fleet(hardware.p5, 1, "p5"),
    "topology-matrix": hardware.fleet(hardware.dgx_h100, 1, "dgx-h100"),
    "hooks": hardware.fleet(hardware.dgx_h100, 1, "dgx-h100"),
}
"""By scenario, the Nodes and ResourceSlices on which it works."""

HEADER = "# What the cluster holds: a Node and the ResourceSlices that its DRA drivers publish.\n"


def text(scenario: str) -> str:
    """The file of a scenario."""
    documents = yaml.safe_dump_all(MACHINES[scenario], sort_keys=False, default_flow_style=None, width=160)
    return HEADER + str(documents)


def path(scenario: str) -> Path:
    """Where the file of a scenario is. Not in the scenario's own folder, so that `kubectl apply -f` leaves it alone."""
    return EXAMPLES / scenario / "machines" / "machines.yaml"


def matrix() -> str:
    """The ConfigMap of the topology-matrix scenario."""
    return "\n".join(
        [
            "# The output of `nvidia-smi topo -m` on one machine of the shape, in the operator's namespace.",
            "# topo.gpus names the GPU of each row, so that rows need not be matched by order.",
            "apiVersion: v1",
            "kind: ConfigMap",
            "metadata:",
            "  name: dgx-h100",
            "  namespace: adjoin-system",
            "data:",
            "  topo.gpus: |",
            *(f"    {line}" for line in hardware.dgx_h100_gpu_rows().splitlines()),
            "  topo: |2",
            *(f"    {line}".rstrip() for line in hardware.dgx_h100_matrix().splitlines()),
            "",
        ]
    )


def main() -> None:
    """Writes every file."""
    for scenario in MACHINES:
        path(scenario).parent.mkdir(parents=True, exist_ok=True)
        path(scenario).write_text(text(scenario))
    (EXAMPLES / "topology-matrix" / "matrix.yaml").write_text(matrix())


if __name__ == "__main__":
    main()
