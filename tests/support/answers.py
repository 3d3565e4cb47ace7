"""Plans, made and read: what tests of whole decisions ask of an answer again and again."""

from __future__ import annotations

from tests.support import checks, make

from adjoin_allocator import ClaimPlan, ClaimUID, Code, Memo, Plan, Snapshot, plan


def planned(snapshot: Snapshot, memo: Memo | None = None) -> Plan:
    answer = plan(snapshot, make.NOW, memo)
    checks.assert_valid(snapshot, answer)
    return answer


def of(answer: Plan, claim: str = "claim") -> ClaimPlan:
    return answer.claims[ClaimUID(f"uid-{claim}")]


def nodes_of(answer: Plan, claim: str = "claim") -> list[str]:
    return [placement.node for placement in of(answer, claim).placements]


def codes(answer: Plan, claim: str = "claim") -> list[Code]:
    return [reason.code for reason in of(answer, claim).reasons]
