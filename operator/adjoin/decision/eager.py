"""Devices that shares prepare without being asked (`prepare: Eager`), and who yields where two of them select one.

In come the shares and the devices; out goes for each share what it is to have in its mode. The older share wins,
whoever was edited last: the answer depends on what there is now, not on how it came about. What a share has it keeps,
so that nothing is converted for the sake of an order.
"""

from __future__ import annotations

from collections.abc import Mapping

from adjoin.api.share import Prepare
from adjoin.decision.idle import taken
from adjoin.decision.modes import Eager
from adjoin.decision.scene import Scene
from adjoin.environment import ShareFacts
from adjoin.status import share_problem
from adjoin_allocator.acceptance import ShareReport
from adjoin_allocator.model import Device, DeviceID, Share
from adjoin_allocator.selectors import match_all
from adjoin_allocator.terms import Standing


class Selected:
    """Devices that shares select, node by node; what is remembered changes speed alone."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[Share, dict[str, tuple[tuple[Device, ...], tuple[Device, ...]]]]] = {}

    def of(self, share: Share, inventory: Mapping[str, tuple[Device, ...]]) -> list[tuple[Device, ...]]:
        """The devices that the share selects, by node in stable order, whatever state they are in."""
        known = self._known.get(share.name)
        before = known[1] if known is not None and known[0] is share else {}
        nodes: dict[str, tuple[tuple[Device, ...], tuple[Device, ...]]] = {}
        for node, devices in inventory.items():
            there = before.get(node)
            if there is None or there[0] is not devices:
                there = (devices, tuple(device for device in devices if _selects(share, device)))
            nodes[node] = there
        self._known[share.name] = (share, nodes)
        return [selected for _, selected in nodes.values() if selected]

    def forget(self, kept: Mapping[str, Share]) -> None:
        """Drops what is remembered of shares that are gone."""
        self._known = {name: known for name, known in self._known.items() if name in kept}


def _selects(share: Share, device: Device) -> bool:
    offered = device.device_pool == share.pool and device.kind == share.kind
    return offered and match_all(share.selectors, device).matched


def decide_eager(scene: Scene, selected: Selected, reports: Mapping[str, ShareReport]) -> Mapping[str, Eager]:
    """By UID of each share that prepares devices by itself, which. `reports` say of shares whether they are refused."""
    snapshot = scene.snapshot
    selected.forget(snapshot.shares)
    eager = [
        facts
        for facts in scene.view.shares.values()
        if facts.share.spec.prepare is Prepare.EAGER and facts.meta.deleting is None and _sound(facts, reports, scene)
    ]
    if not eager:
        return {}
    eager.sort(key=lambda each: (each.meta.created or 0.0, each.meta.name, each.meta.uid))
    names = [each.meta.name for each in eager]
    busy, promised, gone = taken(scene), scene.promised, frozenset[DeviceID]()
    found = {}
    for rank, facts in enumerate(eager):
        younger = frozenset(names[rank + 1 :])
        share = snapshot.shares[facts.meta.name]
        mine = [each for group in selected.of(share, snapshot.inventory) for each in group]
        yielded = tuple(each for each in mine if each.id in gone)
        own = {each.today for each in scene.modes.by_share.get(facts.meta.uid, ())}
        able = [
            each
            for each in mine
            if each.id not in gone and (each.id in own or _free(each, share.name, younger, (busy, promised), scene))
        ]
        able.sort(key=lambda each: each.id not in own)
        wanted = able if share.max_devices is None else able[: max(share.max_devices, 0)]
        gone |= {each.id for each in wanted}
        found[facts.meta.uid] = Eager(tuple(wanted), yielded)
    return found


def _sound(facts: ShareFacts, reports: Mapping[str, ShareReport], scene: Scene) -> bool:
    report = reports.get(facts.meta.name)
    if report is not None and report.refusal:
        return False
    known = scene.snapshot.shares.get(facts.meta.name)
    return known is not None and known.uid == facts.meta.uid and not share_problem(facts, known, scene.snapshot.pools)


def _free(
    device: Device,
    name: str,
    younger: frozenset[str],
    others: tuple[frozenset[DeviceID], frozenset[DeviceID]],
    scene: Scene,
) -> bool:
    """Whether a share may bring the device into its mode. What a younger such share has idle in its
    own it gives up. `others` have devices: all, and those that this decision gives them."""
    node = scene.inventory.nodes.get(device.node)
    if node is None or not node.ready or device.standing is not Standing.OFFERED:
        return False
    if any(each.share != name for each in scene.users(device.id)):
        return False
    inside = scene.modes.by_device.get(device.id, ())
    if inside:
        # Its hooks may have it right now; they end.
        return device.id not in others[1] and all(each.share.meta.name in (name, *younger) for each in inside)
    return device.id not in others[0]
