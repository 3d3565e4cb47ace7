"""What containerd, the CNI plugins and the kubelet read. Texts only; nothing is written or started here.

What differs from a production node, and why: no NRI, no metrics, no garbage collection of images and no eviction for
want of space, since a node lives for minutes; no DNS and no kube-proxy, since pods talk to nobody; tests may run
where raising limits is forbidden (restrict_oom_score_adj) and where swap is on.
"""

from __future__ import annotations

import json
from pathlib import Path

CONTAINERD_SOCKET = "/run/containerd/containerd.sock"
CDI_FOLDER = "/run/cdi"
POD_SUBNET = "10.202.0.0/24"


def containerd(*, pause_image: str, runc: Path, cni_programs: Path, cni_folder: Path) -> str:
    """containerd's config.toml, version 4."""
    cri = "plugins.'io.containerd.cri.v1.runtime'"
    return f"""version = 4
root = '/var/lib/containerd'
state = '/run/containerd'
imports = []
# The folder of this one lies outside of what a node may write.
disabled_plugins = ['io.containerd.internal.v1.opt']
[grpc]
  address = '{CONTAINERD_SOCKET}'
[plugins.'io.containerd.cri.v1.images']
  snapshotter = 'overlayfs'
  [plugins.'io.containerd.cri.v1.images'.pinned_images]
    sandbox = '{pause_image}'
[{cri}]
  cdi_spec_dirs = ['{CDI_FOLDER}']
  restrict_oom_score_adj = true
  [{cri}.containerd.runtimes.runc]
    runtime_type = 'io.containerd.runc.v2'
    [{cri}.containerd.runtimes.runc.options]
      BinaryName = '{runc}'
      SystemdCgroup = false
  [{cri}.cni]
    bin_dirs = ['{cni_programs}']
    conf_dir = '{cni_folder}'
[plugins.'io.containerd.nri.v1.nri']
  disable = true
"""


def network() -> str:
    """The CNI configuration: every pod has a link to the node and nothing else."""
    routes = [{"dst": "0.0.0.0/0"}]
    addresses = {"type": "host-local", "dataDir": "/run/cni-addresses", "subnet": POD_SUBNET, "routes": routes}
    return json.dumps(
        {"cniVersion": "1.0.0", "name": "node", "plugins": [{"type": "ptp", "ipMasq": False, "ipam": addresses}]}
    )


def kubelet(*, address: str, client_ca: Path, cgroup: str) -> str:
    """KubeletConfiguration. Its serving certificate is self-made; `cgroup` is the only one below which it works."""
    never = dict.fromkeys(("nodefs.available", "nodefs.inodesFree", "imagefs.available"), "0%")
    return json.dumps(
        {
            "apiVersion": "kubelet.config.k8s.io/v1beta1",
            "kind": "KubeletConfiguration",
            "address": address,
            "authentication": {
                "anonymous": {"enabled": False},
                "webhook": {"enabled": True},
                "x509": {"clientCAFile": str(client_ca)},
            },
            "authorization": {"mode": "Webhook"},
            "cgroupDriver": "cgroupfs",
            "cgroupRoot": f"/{cgroup}",
            "containerRuntimeEndpoint": f"unix://{CONTAINERD_SOCKET}",
            "evictionHard": {"memory.available": "50Mi", **never},
            "failCgroupV1": False,
            "failSwapOn": False,
            "imageGCHighThresholdPercent": 100,
            "imageGCLowThresholdPercent": 99,
            "localStorageCapacityIsolation": False,
            "logging": {"verbosity": 4},
            "makeIPTablesUtilChains": False,
            "nodeStatusReportFrequency": "10s",
            "nodeStatusUpdateFrequency": "5s",
            "protectKernelDefaults": True,
            "readOnlyPort": 0,
            "resolvConf": "",
            "syncFrequency": "10s",
            "volumePluginDir": "/var/lib/kubelet/volume-plugins",
        },
        indent=1,
    )
