"""Which partition, and which function, everybody gets: what was open while claims were served is settled at the end.

In come the answers of a decision and a ledger that holds what was held before it; out come the same answers with a
start for each partition, a number for each virtual function, and the slots of each time slice. Of a card the partitions
lie as `partition_rules` has them best; functions are given from the lowest number, the oldest claim first. Promises
stay open: who is to leave is still there.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import inf

from adjoin_allocator.ledger import Ledger
from adjoin_allocator.model import Claim, ClaimUID, Device, PlacedDevice, PlacedShare, Share
from adjoin_allocator.partition_rules import PartitionRule
from adjoin_allocator.partitions import Slot
from adjoin_allocator.results import ClaimPlan
from adjoin_allocator.rulebook import rule_for
from adjoin_allocator.snapshot import Snapshot
from adjoin_allocator.terms import ShareMode

OPEN = frozenset({ShareMode.TIME_SLICED, ShareMode.PARTITIONED, ShareMode.VIRTUAL_FUNCTIONS})
"""Modes of which something is open until the end."""

Card = tuple[str, int, int]
"""Pool, position and bit."""


@dataclass(slots=True, eq=False)
class _Pile:
    """What this decision gives of one card."""

    share: Share
    device: Device
    parts: list[PlacedShare]


def settled(answers: Mapping[ClaimUID, ClaimPlan], snapshot: Snapshot, ledger: Ledger) -> Mapping[ClaimUID, ClaimPlan]:
    """The answers with nothing open but where promised partitions and functions will be. Costs a look at what was
    placed, where such shares are.
    """
    if not any(share.mode in OPEN for share in snapshot.shares.values()):
        return answers
    answers = {uid: _promised(answer, snapshot) if answer.nominated else answer for uid, answer in answers.items()}
    claims = {claim.uid: claim for claim in snapshot.claims if claim.uid in answers}
    piles: dict[Card, _Pile] = {}
    order = sorted((uid for uid, answer in answers.items() if answer.placements), key=lambda uid: _age(claims[uid]))
    for uid in order:
        for placement in answers[uid].placements:
            for device in placement.devices:
                share = None if device.share is None else snapshot.shares.get(device.share.name)
                if share is not None and share.mode in OPEN and device.share is not None:
                    card, there = ledger.card(device.id)
                    piles.setdefault(card, _Pile(share, there, [])).parts.append(device.share)
    if not piles:
        return answers
    given = {card: deque(_shares(ledger, card, pile)) for card, pile in piles.items()}
    found = dict(answers)
    for uid in order:
        placements = []
        for placement in answers[uid].placements:
            devices = tuple(_given(device, snapshot, ledger, given) for device in placement.devices)
            placements.append(placement if devices == placement.devices else replace(placement, devices=devices))
        found[uid] = replace(answers[uid], placements=tuple(placements))
    return found


def _promised(answer: ClaimPlan, snapshot: Snapshot) -> ClaimPlan:
    """With the number of slots that are promised."""

    def told(device: PlacedDevice) -> PlacedDevice:
        part = device.share
        share = None if part is None else snapshot.shares.get(part.name)
        if part is None or part.slots is not None or share is None or share.mode is not ShareMode.TIME_SLICED:
            return device
        return replace(device, share=replace(part, slots=1))

    nominated = tuple(replace(one, devices=tuple(map(told, one.devices))) for one in answer.nominated)
    return replace(answer, nominated=nominated)


def _age(claim: Claim) -> tuple[float, str]:
    return inf if claim.created is None else claim.created, claim.uid


def _given(
    device: PlacedDevice, snapshot: Snapshot, ledger: Ledger, given: Mapping[Card, deque[PlacedShare]]
) -> PlacedDevice:
    share = None if device.share is None else snapshot.shares.get(device.share.name)
    if share is None or share.mode not in OPEN:
        return device
    return replace(device, share=given[ledger.card(device.id)[0]].popleft())


def _shares(ledger: Ledger, card: Card, pile: _Pile) -> list[PlacedShare]:
    """The parts of one card with nothing open, in their order."""
    share, held = pile.share, Counter(ledger.parts.held(*card))
    if share.mode is ShareMode.TIME_SLICED:
        return [replace(part, slots=1 if part.slots is None else part.slots) for part in pile.parts]
    if share.mode is ShareMode.VIRTUAL_FUNCTIONS:
        taken = {part.vf for part in held}
        free = (number for number in range(share.functions + len(pile.parts)) if number not in taken)
        return [replace(part, vf=number) for part, number in zip(pile.parts, free, strict=False)]
    rule = rule_for(share, pile.device)
    assert isinstance(rule, PartitionRule)
    held.update(pile.parts)
    demand = ledger.parts.appraiser(card[0], share.kind).profiles(share.name)
    found = rule.settled(rule.use(held.items()), demand)
    slots: dict[str, list[Slot]] = {name: list(each) for name, each in found.items()}
    return [replace(part, start=slots[part.profile or ""].pop(0).start) for part in pile.parts]
