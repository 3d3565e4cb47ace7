"""One share: its status, and whether it may go."""

from __future__ import annotations

from adjoin.api.names import FINALIZER
from adjoin.decision.scene import ORDER_RELEASE, ORDER_SHOW, Scene, Work
from adjoin.environment import ShareFacts
from adjoin.holdings import read_placed
from adjoin.intents import Kind, Step, Verb
from adjoin.lifecycle import drop_finalizer
from adjoin.status import merge_patch, share_problem, share_status
from adjoin_allocator.acceptance import ShareReport
from adjoin_allocator.model import Share


def decide_share(
    share: ShareFacts, known: Share | None, over: str, report: ShareReport, scene: Scene, work: Work
) -> None:
    """Lets a deleted share go once nobody has a part of it any more, and shows what there is to say; `over` is of what
    more is in use than it may give.
    """
    meta = share.meta
    if meta.deleting is not None and not _held(meta.name, scene):
        if FINALIZER in share.finalizers:
            work.want(meta.uid, "let go", (drop_finalizer(Kind.DEVICE_SHARE, share),), ORDER_RELEASE)
        return
    if known is None or known.uid != meta.uid:
        return
    problem = share_problem(share, known, scene.inventory.pools) or report.refusal
    status = share_status(share, problem, over, scene.now, report)
    patch = merge_patch(share.status, status)
    if patch:
        body = {"status": patch}
        step = Step(Verb.PATCH_STATUS, Kind.DEVICE_SHARE, "", meta.name, meta.uid, meta.version, body)
        work.want(meta.uid, "show share", (step,), ORDER_SHOW)


def _held(name: str, scene: Scene) -> bool:
    """Whether some claim still has a part out of the share."""
    return any(
        device.share is not None and device.share.name == name
        for claim in scene.view.claims.values()
        for replica in read_placed(claim.status)
        for device in replica.devices
    )
