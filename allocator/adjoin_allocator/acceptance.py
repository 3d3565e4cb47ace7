"""What a share makes of the devices that it selects: whether all can be split so, and which partitions are where.

In come shares, devices and what is held of them; out comes whether a share is accepted, or the first device that it
cannot split and why, what of its layout cannot be beside what is in use, and where its partitions lie. Nothing is
placed here, and nothing here decides who gets a part.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice

from adjoin_allocator.model import Device, DeviceID, PlacedShare, Share, natural_key
from adjoin_allocator.partition_rules import PartitionRule
from adjoin_allocator.partitions import Refusal, Slot, relayout
from adjoin_allocator.results import Plan
from adjoin_allocator.rulebook import rule_for
from adjoin_allocator.selectors import match_all
from adjoin_allocator.snapshot import Snapshot
from adjoin_allocator.terms import ShareMode

Holders = Mapping[tuple[str, DeviceID], tuple[tuple[str, PlacedShare], ...]]
"""By node and device the parts that are held of it, each with who holds it."""


@dataclass(frozen=True, slots=True)
class ShareReport:
    """How one share stands.

    Attributes:
        refusal: Why nothing can be given out of it, or "".
        in_use: Which devices keep another layout because of what is in use, and by whom; or "".
        placements: Partitions by device, in stable order: those of a layout, made or to be made, and those in use.
    """

    refusal: str = ""
    in_use: str = ""
    placements: tuple[tuple[Device, tuple[Slot, ...]], ...] = ()


def refusal(share: Share, devices: Iterable[Device]) -> str:
    """Why a share cannot split these devices (those that it selects, in stable order), naming the first that is in the
    way; or "". Not more of them count than it may split. Of profiles that are made on demand each device must have
    some, and each must be some device's.
    """
    if share.mode is not ShareMode.PARTITIONED:
        return ""
    known: dict[int, str] = {}
    devices = list(islice(devices, share.max_devices))
    published = next((device for device in devices if device.consumes), None)
    if published is not None:
        # Two tables of one card would not know of each other.
        name = f"{published.node}/{published.id.device}"
        return f"{name}: its driver publishes partitions itself: claim these as devices of the pool, by selector"
    first: tuple[Device, PartitionRule] | None = None
    unknown = list(share.profiles)
    for device in devices:
        rule = rule_for(share, device)
        assert isinstance(rule, PartitionRule)
        first = first or (device, rule)
        if id(rule) not in known:
            known[id(rule)] = rule.refusal()
            strange = rule.unknown()
            unknown = [name for name in unknown if name in strange]
        if known[id(rule)]:
            return f"{device.node}/{device.id.device}: {known[id(rule)]}"
    if unknown and first is not None:
        return f"{first[0].node}/{first[0].id.device}: {first[1].stranger(unknown)}"
    return ""


def share_reports(snapshot: Snapshot, plan: Plan | None = None) -> Mapping[str, ShareReport]:
    """How each share of mode Partitioned stands, once the plan is carried out. Costs a look at each device that such
    shares could select, and at each claim, where there are any.
    """
    shares = [share for _, share in sorted(snapshot.shares.items()) if share.mode is ShareMode.PARTITIONED]
    if not shares:
        return {}
    held = holders(snapshot, plan)
    return {share.name: _report(share, list(selected(share, snapshot)), held) for share in shares}


def holders(snapshot: Snapshot, plan: Plan | None = None) -> Holders:
    """Who holds which parts, and will, once the plan is carried out."""
    found: dict[tuple[str, DeviceID], list[tuple[str, PlacedShare]]] = {}
    for claim in snapshot.claims:
        decided = plan.claims.get(claim.uid) if plan is not None else None
        lost = decided.conflicts if decided is not None else ()
        name = f"{claim.namespace}/{claim.name}"
        replicas = [(one.node, one.devices) for one in claim.placed if one.index not in lost]
        replicas += [(one.node, one.devices) for one in decided.placements] if decided is not None else []
        for node, devices in replicas:
            for device in devices:
                if device.share is not None:
                    found.setdefault((node, device.id), []).append((name, device.share))
    return {key: tuple(parts) for key, parts in found.items()}


def selected(share: Share, snapshot: Snapshot) -> Iterator[Device]:
    """The devices that a share selects, in stable order, whatever state they are in."""
    for name in sorted(snapshot.inventory, key=natural_key):
        for device in snapshot.inventory[name]:
            mine = device.device_pool == share.pool and device.kind == share.kind
            if mine and match_all(share.selectors, device).matched:
                yield device


def _report(share: Share, devices: list[Device], held: Holders) -> ShareReport:
    why = refusal(share, devices)
    placements, stuck = [], []
    for at, device in enumerate(devices):
        rule = rule_for(share, device)
        assert isinstance(rule, PartitionRule)
        mine = [(who, part) for who, part in held.get((device.node, device.id), ()) if part.name == share.name]
        fixed = tuple(sorted(slot for _, part in mine if (slot := _slot(rule, part)) is not None))
        slots = fixed
        if share.layout and not why and rule.geometry is not None:
            layout = relayout(rule.geometry, fixed, share.layout)
            if isinstance(layout, Refusal):
                busy = set(layout.busy)
                users = dict.fromkeys(who for who, part in mine if _slot(rule, part) in busy)
                stuck.append(f"{device.node}/{device.id.device}: {layout.text}, in use by {', '.join(users)}")
            elif share.max_devices is None or at < share.max_devices or fixed:
                slots = layout
        if slots:
            placements.append((device, slots))
    return ShareReport(why, "; ".join(stuck), tuple(placements))


def _slot(rule: PartitionRule, part: PlacedShare) -> Slot | None:
    return None if part.start is None else rule.slot(part.profile or "", part.start)
