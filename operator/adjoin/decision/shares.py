"""One share: the devices in its mode, its status, and whether it may go."""

from __future__ import annotations

from dataclasses import dataclass

from adjoin.api.names import FINALIZER
from adjoin.decision.eager import Selected
from adjoin.decision.modes import Eager, decide_modes
from adjoin.decision.scene import ORDER_PLACE, ORDER_RELEASE, ORDER_SHOW, Scene, Work, turn
from adjoin.delivery import begin, event_step
from adjoin.environment import ShareFacts
from adjoin.intents import Kind, Step, Verb
from adjoin.lifecycle import drop_finalizer
from adjoin.status import Units, count_units, merge_patch, share_problem, share_status
from adjoin_allocator.acceptance import ShareReport
from adjoin_allocator.model import Share

COUNTS_SECONDS = 1.0
"""How often a share's numbers may be brought up to date."""


@dataclass(frozen=True, slots=True, eq=False)
class Counted:
    """A share's parts in numbers, and what they were made of."""

    facts: tuple[object, ...]
    units: Units


def count_share(
    share: ShareFacts, known: Share | None, selected: Selected, before: Counted | None, scene: Scene, work: Work
) -> Counted | None:
    """How many parts there are and are free: counted anew when it is the share's turn and something has changed.
    O(devices that it selects)."""
    if known is None or known.uid != share.meta.uid:
        return None
    snapshot = scene.snapshot
    there = (snapshot.inventory, snapshot.claims, snapshot.modes, snapshot.nodes, snapshot.holds)
    facts = (share.meta.generation, known, *there)
    if before is not None and before.facts[0] == facts[0]:
        if all(one is other for one, other in zip(before.facts[1:], facts[1:], strict=True)):
            return before
        due, next_turn = turn(share.meta.uid, COUNTS_SECONDS, scene.now)
        if not due:
            work.wake(next_turn)
            return before
    devices = [each for group in selected.of(known, snapshot.inventory) for each in group]
    held = {id_: [each.placed.share for each in scene.users(id_)] for id_ in (device.id for device in devices)}
    return Counted(facts, count_units(known, devices, held, snapshot))


def decide_share(
    share: ShareFacts,
    known: Share | None,
    eager: Eager,
    counted: Counted | None,
    over: str,
    report: ShareReport,
    scene: Scene,
    work: Work,
) -> None:
    """Brings the devices in its mode on, lets a deleted share go once nobody has a part of it any more and its devices
    are whole, and shows what there is to say; `over` is of what more is in use than it may give.
    """
    meta = share.meta
    parts = scene.users_of(meta.name)
    holders = sorted({each.claim for group in parts.values() for each in group})
    if meta.deleting is not None and not holders and not share.status.get("placements"):
        if FINALIZER in share.finalizers:
            work.want(meta.uid, "let go", (drop_finalizer(Kind.DEVICE_SHARE, share),), ORDER_RELEASE)
        return
    if known is None or known.uid != meta.uid:
        return
    course = decide_modes(share, known, eager, scene)
    work.wake(course.wake_at)
    status = share_status(
        share,
        share_problem(share, known, scene.inventory.pools) or report.refusal,
        over,
        scene.now,
        report,
        placements=course.entries,
        units=counted.units if counted is not None else None,
        holders=holders,
        yielded=[str(each.id) for each in eager.yielded],
        waits=course.waits,
    )
    patch = merge_patch(share.status, status)
    steps: list[Step] = []
    if patch:
        body = {"status": patch}
        steps.append(Step(Verb.PATCH_STATUS, Kind.DEVICE_SHARE, "", meta.name, meta.uid, meta.version, body))
    steps += [step for task in course.tasks for step in begin(task, scene.relations, scene.now)]
    steps += [event_step(Kind.DEVICE_SHARE, meta, each, "Convert", scene.now) for each in course.notices]
    urgent = course.changed or bool(course.tasks)
    why = "convert" if urgent else "show share"
    work.want(meta.uid, why, steps, ORDER_PLACE if urgent else ORDER_SHOW)
