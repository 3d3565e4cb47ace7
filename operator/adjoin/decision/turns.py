"""Whose turn it is at a card of which several claims have parts: hooks work on it one at a time.

In come all records of hooks that run; out goes whether a claim, or the share itself, may begin one. A ResourceClaim of
a hook has the whole card, and tools that divide cards do not expect each other. Two that run already, as only somebody
else's hand could bring about, take turns by age.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from adjoin.api.claim_status import HookPhase
from adjoin.cache import View
from adjoin.facts import Raw
from adjoin.lifecycle import entries
from adjoin.modes import Modes
from adjoin_allocator.model import DeviceID
from adjoin_allocator.snapshot import Snapshot

Worker = tuple[float, str, int]
"""Creation, UID and replica of who has a hook at work; of a share -1."""


@dataclass(slots=True)
class Turns:
    """Who works on which card. `working` is by today's name, oldest first."""

    working: dict[DeviceID, list[Worker]] = field(default_factory=dict)
    _begun: dict[DeviceID, Worker] = field(default_factory=dict)

    def waits(self, devices: Iterable[DeviceID], me: Worker) -> bool:
        """Whether somebody else is at one of these cards, and goes first."""
        for device in devices:
            others = [each for each in self.working.get(device, ()) if each[1:] != me[1:]]
            mine = any(each[1:] == me[1:] for each in self.working.get(device, ()))
            if any(not mine or other < me for other in others) or self._begun.get(device, me)[1:] != me[1:]:
                return True
        return False

    def begin(self, devices: Iterable[DeviceID], me: Worker) -> None:
        """This decision begins a hook there; no other one may any more."""
        self._begun |= dict.fromkeys(devices, me)


def turns(view: View, snapshot: Snapshot, modes: Modes) -> Turns:
    """Who is at which card of those that are divided. O(claims), where there are shares at all."""
    made = Turns()
    if not view.shares:
        return made
    for claim in snapshot.claims:
        divided = [each for each in claim.placed if any(device.share is not None for device in each.devices)]
        facts = view.claims.get(claim.uid) if divided else None
        if facts is None:
            continue
        running = {int(entry.get("index") or 0) for entry in entries(facts) if _runs(entry.get("hooks"))}
        for replica in divided:
            if replica.index in running:
                worker = (claim.created or 0.0, str(claim.uid), replica.index)
                for device in {each.id for each in replica.devices if each.share is not None}:
                    made.working.setdefault(device, []).append(worker)
    for group in modes.by_share.values():
        for each in group:
            if _runs(each.entry.get("hooks")):
                meta = each.share.meta
                made.working.setdefault(each.today, []).append((meta.created or 0.0, meta.uid, -1))
    for workers in made.working.values():
        workers.sort()
    return made


def _runs(hooks: Iterable[Raw] | None) -> bool:
    return any(hook.get("phase") == HookPhase.RUNNING for hook in hooks or ())
