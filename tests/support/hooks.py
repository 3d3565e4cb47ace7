"""Puts together the files of `examples/hooks` that are made of others.

`python -m tests.support.hooks` writes `scripts.yaml`, a ConfigMap of the scripts, and `pool.yaml`, a DevicePool of all
entries; a test keeps them equal to what they are made of.
"""

from __future__ import annotations

import textwrap
from pathlib import Path

FOLDER = Path(__file__).resolve().parents[2] / "examples" / "hooks"
SCRIPTS = FOLDER / "scripts"
ENTRIES = FOLDER / "entries"

LIBRARIES = ("hook", "nvidia", "cuda", "rdma")
"""Scripts that are no hooks, but used by them."""

INIT = ("gpu-visible", "gpu-errors", "rdma-link", "gpudirect-bandwidth")
CLEANUP = ("gpu-scrub", "mig-teardown", "rdma-back")
"""In the order in which they run: what is cheap, and explains failures of others, first."""

SHARING = ("mig-partition", "mps-limits", "sriov-vf", "node-config")
"""Those that make parts and take them apart, in both phases: each is for one mode, so that no pool has all of them."""

SCRIPTS_HEAD = """\
# The scripts of this folder's hooks, in the operator's namespace, where hooks run. Made from scripts/*.py.
apiVersion: v1
kind: ConfigMap
metadata:
  name: adjoin-hooks
  namespace: adjoin-system
data:
"""

POOL_HEAD = """\
# A pool whose devices are verified before and cleaned after. Take the hooks that you need. Made from entries/*.yaml.
apiVersion: adjoin.dev/v1alpha1
kind: DevicePool
metadata:
  name: verified
spec:
  devices:
  - name: gpu
    type: GPU
    source:
      resourceSlices:
        driver: gpu.nvidia.com
        selectors: [{cel: "device.attributes['gpu.nvidia.com'].type == 'gpu'"}]
  - name: nic
    type: RDMA
    source:
      resourceSlices:
        driver: dra.net
        selectors: [{cel: "device.attributes['dra.net'].rdma"}]
  topology:
    attributes:
      pcieRoot: [resource.kubernetes.io/pcieRoot]
      numaNode: [resource.kubernetes.io/numaNode, dra.net/numaNode]
  lifecycle:
    # A parameter with one value is the platform team's word; claims may choose among several.
    parameters:
    - {name: scrub, values: [quick, full], default: quick}
    - {name: rdma-gbps, values: ["400"], default: "400"}
    - {name: gpudirect-percent, values: ["50"], default: "50"}
"""


def script_names() -> list[str]:
    """File names of all scripts."""
    return sorted(path.name for path in SCRIPTS.glob("*.py"))


def scripts_yaml() -> str:
    """The ConfigMap."""
    parts = [SCRIPTS_HEAD]
    for name in script_names():
        parts.append(f"  {name}: |\n{textwrap.indent((SCRIPTS / name).read_text(), '    ')}")
    return "".join(parts)


def pool_yaml() -> str:
    """The DevicePool."""
    parts = [POOL_HEAD]
    for phase, names in (("init", INIT), ("cleanup", CLEANUP)):
        parts.append(f"    {phase}:\n")
        for name in names:
            comment, *lines = (ENTRIES / f"{name}.yaml").read_text().splitlines()
            first, *rest = lines
            parts.append(f"    {comment}\n    - {first}\n" + "".join(f"      {line}\n" for line in rest))
    return "".join(parts)


def main() -> None:
    """Writes both files."""
    (FOLDER / "scripts.yaml").write_text(scripts_yaml())
    (FOLDER / "pool.yaml").write_text(pool_yaml())


if __name__ == "__main__":
    main()
