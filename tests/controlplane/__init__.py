"""A real Kubernetes control plane for tests, the demo and benchmarks.

`ControlPlane` starts one (etcd, API server, controller manager, scheduler, simulated nodes), `Options` says how it
shall differ from the defaults, `ensure` builds the programs behind it, `create_objects` fills it quickly.
"""

from tests.controlplane.build import ensure
from tests.controlplane.client import ApiFailure
from tests.controlplane.errors import BuildError
from tests.controlplane.nodes import create_objects, simulate, simulated_node, wait_nodes_ready
from tests.controlplane.options import Options
from tests.controlplane.recipes import Group
from tests.controlplane.server import ControlPlane, StartError

__all__ = [
    "ApiFailure",
    "BuildError",
    "ControlPlane",
    "Group",
    "Options",
    "StartError",
    "create_objects",
    "ensure",
    "simulate",
    "simulated_node",
    "wait_nodes_ready",
]
