"""How a control plane shall differ from the defaults. Values only; read once, when it starts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from tests.controlplane.recipes import OWN_STAGES, STAGES

DEFAULT_STAGES = ("node-initialize", "node-heartbeat-with-lease", "pod-ready", "pod-complete", "pod-stop", "pod-gone")
# A kubelet's own default, on which kube-controller-manager's patience (50 s) is built.
DEFAULT_NODE_LEASE_SECONDS = 40


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """`None` and empty mean: what Kubernetes does by itself. Nothing is set that is not named here.

    `scheduler_qps` and `scheduler_burst` limit the scheduler's client (Kubernetes: 50 and 100),
    `controller_manager_qps` and `_burst` that of the controllers (20 and 30, each). `feature_gates` go to API server,
    controller manager and scheduler alike; `runtime_config` turns API versions on ("resource.k8s.io/v1beta1": True).

    `audit` writes one line for each request, which `ControlPlane.requests()` and `writes()` read.

    `kwok_stages` are names from `recipes.STAGES` and `recipes.OWN_STAGES`. With "pod-complete" pods of Jobs end at
    once; with "pod-complete-delayed" in its place they run for 1 to 6 s, or as their annotations
    pod-complete.stage.kwok.x-k8s.io/delay and …/jitter-delay say; with neither they run until deleted.

    `node_lease_seconds` is how long a simulated node's Lease holds; it is renewed every quarter of that. 1,000 nodes
    with 40 s make 100 writes a second; benchmarks raise it. The controller manager's patience grows in the same
    proportion.

    `gateway` is the address, within this network namespace, by which real kubelets reach the API server. It then
    listens on every address of the namespace, so let that be one made for the tests; kubelets are known by certificate,
    may do what the Node authorizer and NodeRestriction let them, and are asked for logs and exec.
    """

    controller_manager: bool = True
    scheduler: bool = True
    kwok: bool = True
    scheduler_qps: float | None = None
    scheduler_burst: int | None = None
    percentage_of_nodes_to_score: int | None = None
    controller_manager_qps: float | None = None
    controller_manager_burst: int | None = None
    feature_gates: Mapping[str, bool] = field(default_factory=dict)
    runtime_config: Mapping[str, bool] = field(default_factory=dict)
    audit: bool = False
    kwok_stages: tuple[str, ...] = DEFAULT_STAGES
    node_lease_seconds: int = DEFAULT_NODE_LEASE_SECONDS
    gateway: str | None = None
    verbosity: int = 1

    def __post_init__(self) -> None:
        known = (*STAGES, *OWN_STAGES)
        unknown = [name for name in self.kwok_stages if name not in known]
        if unknown:
            raise ValueError(f"kwok_stages: {', '.join(unknown)} is unknown; known are {', '.join(known)}")
        if self.node_lease_seconds < 4:
            raise ValueError("node_lease_seconds: below 4 a renewal would be due more than once a second")
