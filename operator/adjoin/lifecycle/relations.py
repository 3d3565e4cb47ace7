"""Who belongs to whom: the view, joined once for a decision.

In comes a view, out go claims, pods and ResourceClaims by what refers to them. Nothing here depends on the time.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass

from adjoin.api.names import ANNOTATION_REPLICA
from adjoin.cache import View
from adjoin.facts import ClaimFacts, PodFacts, PoolFacts, ResourceClaimFacts
from adjoin.grants import GrantFacts, Record
from adjoin.lifecycle.runs import Workshop, workshop
from adjoin_allocator.model import DeviceID

LABEL_REPLICA = ANNOTATION_REPLICA
"""On our ResourceClaims: which replica they hand over."""
BUILTIN_FINALIZER = "resource.kubernetes.io/delete-protection"
"""Kubernetes' own on ResourceClaims: with it the allocation goes as soon as no pod is left."""


@dataclass(frozen=True, slots=True, eq=False)
class Relations:
    """The view, joined.

    Attributes:
        claims: DeviceClaims by (namespace, name).
        pools: DevicePools by name.
        pods: Pods by (namespace, name of the claim that they ask for), oldest first.
        owned: Our ResourceClaims and ConfigMaps by UID of the DeviceClaim that owns them, by name.
        resource_claims: Every ResourceClaim by (namespace, name).
        lingering: Until when a force-deleted pod still holds its devices, by pod UID.
        forced: By pod UID until when that is at least, also after it: how they ended nobody has seen.
        ghosts: Those pods as they were last seen, by (namespace, name of the claim).
        workshop: Hook Jobs.
        hook_claims: Allocated ResourceClaims of hooks, by device.
        grants: ConfigMaps that hand devices to pods, or have the name of one, by (namespace, name).
    """

    claims: Mapping[tuple[str, str], ClaimFacts]
    pools: Mapping[str, PoolFacts]
    pods: Mapping[tuple[str, str], tuple[PodFacts, ...]]
    pods_by_uid: Mapping[str, PodFacts]
    owned: Mapping[str, tuple[Record, ...]]
    resource_claims: Mapping[tuple[str, str], ResourceClaimFacts]
    lingering: Mapping[str, float]
    forced: Mapping[str, float]
    ghosts: Mapping[tuple[str, str], tuple[PodFacts, ...]]
    workshop: Workshop
    hook_claims: Mapping[DeviceID, tuple[ResourceClaimFacts, ...]]
    grants: Mapping[tuple[str, str], GrantFacts]


def seniority(pod: PodFacts) -> tuple[float, str, str]:
    """Sort key of pods: the older goes first."""
    return (pod.meta.created or 0.0, pod.meta.name, pod.meta.uid)


def precedence(pod: PodFacts) -> tuple[bool, float, str, str]:
    """Sort key of pods that have one replica in hand: one that we let go comes before one at its gate."""
    return (pod.gated, *seniority(pod))


def relate(view: View) -> Relations:
    """Joins what refers to each other. O(objects)."""
    pods: defaultdict[tuple[str, str], list[PodFacts]] = defaultdict(list)
    for pod in view.pods.values():
        pods[pod.meta.namespace, pod.claim].append(pod)
    owned: defaultdict[str, list[Record]] = defaultdict(list)
    records: tuple[Record, ...] = (*view.resource_claims.values(), *view.grants.values())
    for record in records:
        # The owner makes it ours: a label alone could be anybody's.
        if record.owner:
            owned[record.owner].append(record)
    hook_claims: defaultdict[DeviceID, list[ResourceClaimFacts]] = defaultdict(list)
    for resource_claim in view.resource_claims.values():
        if resource_claim.hook and resource_claim.allocated and resource_claim.meta.namespace == view.namespace:
            for device in resource_claim.devices:
                hook_claims[device].append(resource_claim)
    ghosts: defaultdict[tuple[str, str], list[PodFacts]] = defaultdict(list)
    for pod in view.ghosts.values():
        ghosts[pod.meta.namespace, pod.claim].append(pod)
    return Relations(
        claims={(claim.meta.namespace, claim.meta.name): claim for claim in view.claims.values()},
        pools={pool.meta.name: pool for pool in view.pools.values()},
        pods={key: tuple(sorted(group, key=seniority)) for key, group in pods.items()},
        pods_by_uid=view.pods,
        owned={uid: tuple(sorted(group, key=lambda each: each.meta.name)) for uid, group in owned.items()},
        resource_claims={(each.meta.namespace, each.meta.name): each for each in view.resource_claims.values()},
        lingering=view.lingering,
        forced=view.forced,
        ghosts={key: tuple(sorted(group, key=seniority)) for key, group in ghosts.items()},
        workshop=workshop(view.jobs.values(), view.hook_pods.values()),
        hook_claims={device: tuple(group) for device, group in hook_claims.items()},
        grants={(each.meta.namespace, each.meta.name): each for each in view.grants.values()},
    )
