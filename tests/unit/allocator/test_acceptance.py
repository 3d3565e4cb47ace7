"""Whether a share can split all devices that it selects."""

from __future__ import annotations

from dataclasses import replace

from tests.support import make
from tests.support.checks import assert_valid

from adjoin_allocator import Code, ShareAsk, ShareMode, plan
from adjoin_allocator.acceptance import share_reports
from adjoin_allocator.cel import Quantity

PRODUCT = {"gpu.nvidia.com/productName": "NVIDIA H100 80GB HBM3"}


def test_a_card_whose_driver_publishes_partitions_is_not_cut_by_a_share_as_well() -> None:
    """Two tables of one card would not know of each other; another card is none of this one's business."""
    plain = make.card("gpu-0", attributes=PRODUCT)
    counted = replace(
        make.card("gpu-1", attributes=PRODUCT), consumes={"gpu-1-counters": {"memory-slice-0": Quantity.parse("1")}}
    )
    share = make.share("mig", mode=ShareMode.PARTITIONED, profiles=("1g.10gb",))
    claim = make.claim("c", make.request("gpu", share=ShareAsk("mig", profile="1g.10gb")))
    snapshot = make.snapshot([plain, counted], [claim], shares=[share])
    answer = plan(snapshot, make.NOW)
    assert_valid(snapshot, answer)
    words = "node-a/gpu-1: its driver publishes partitions itself: claim these as devices of the pool, by selector"
    assert share_reports(snapshot)["mig"].refusal == words
    (reason,) = answer.claims[claim.uid].reasons
    assert (reason.code, reason.message) == (Code.SHARE_UNAVAILABLE, f"DeviceShare mig: {words}")
    alone = make.snapshot([plain], [claim], shares=[share])
    assert share_reports(alone)["mig"].refusal == ""
    assert plan(alone, make.NOW).claims[claim.uid].placements
