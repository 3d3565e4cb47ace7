"""What users see: the status of claims and pools as facts and decisions make it, and the Events that go with a change
of it.

In come facts, reviewed replicas and the plan; out go whole statuses and the patches that bring the stored ones there.
Where nothing differs there is no patch. Nothing here decides anything.
"""

from adjoin.status.claims import (
    Ailing,
    Evicted,
    claim_notice,
    claim_phase,
    claim_status,
    gist,
    nomination_entries,
    standing_failures,
)
from adjoin.status.conditions import merge_patch
from adjoin.status.fragmentation import Fragmentation
from adjoin.status.pools import pool_gist, pool_status
from adjoin.status.shares import placement_entries, share_problem, share_status
from adjoin.status.units import Units, count_units

__all__ = [
    "Ailing",
    "Evicted",
    "Fragmentation",
    "Units",
    "claim_notice",
    "claim_phase",
    "claim_status",
    "count_units",
    "gist",
    "merge_patch",
    "nomination_entries",
    "placement_entries",
    "pool_gist",
    "pool_status",
    "share_problem",
    "share_status",
    "standing_failures",
]
