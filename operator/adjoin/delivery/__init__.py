"""From placement to pod: how a replica's devices reach the pod that asked for them, and how other claims are kept off
them.

In come facts, the replicas of a claim and the devices of the cluster; out go requests for the writer: ResourceClaims
with their allocation or a ConfigMap with environment, the pod's gate, affinity and networks, DeviceTaintRules, and
Events on pods that have to wait. What is already there is not asked for again, so the same call completes a delivery
that was cut off anywhere. Nothing here chooses devices or takes them away.
"""

from adjoin.delivery import environment
from adjoin.delivery.events import Notice, event_step
from adjoin.delivery.guard import GuardWork, Published, guard_work, in_force, published, release_pool, take_down
from adjoin.delivery.hooks import HookDevice, Task, begin
from adjoin.delivery.limits import Holding
from adjoin.delivery.networks import NetworksError, attach
from adjoin.delivery.parts import Layout, Part, parts
from adjoin.delivery.pods import Assignment, assign, could_start, parse_containers, pod_patch, servable
from adjoin.delivery.resourceclaims import Cargo, Handover, excuses, hand_over
from adjoin.delivery.shares import told_of_device, told_of_part

__all__ = [
    "Assignment",
    "Cargo",
    "GuardWork",
    "Handover",
    "Holding",
    "HookDevice",
    "Layout",
    "NetworksError",
    "Notice",
    "Part",
    "Published",
    "Task",
    "assign",
    "attach",
    "begin",
    "could_start",
    "environment",
    "event_step",
    "excuses",
    "guard_work",
    "hand_over",
    "in_force",
    "parse_containers",
    "parts",
    "pod_patch",
    "published",
    "release_pool",
    "servable",
    "take_down",
    "told_of_device",
    "told_of_part",
]
