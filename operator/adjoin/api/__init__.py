"""The API of Adjoin: models of the three kinds, what their absence of values means, and what is refused.

In come objects as dictionaries (from the API server, from files, from admission), out go immutable values or a list of
errors with path, value and remedy. Nothing here knows the cluster.
"""

from adjoin.api.claim import DeviceClaim, DeviceClaimSpec
from adjoin.api.claim_status import Allocation, DeviceClaimStatus, Phase
from adjoin.api.pool import DevicePool, DevicePoolSpec
from adjoin.api.pool_status import DevicePoolStatus
from adjoin.api.share import DeviceShare, DeviceShareSpec, DeviceShareStatus

__all__ = [
    "Allocation",
    "DeviceClaim",
    "DeviceClaimSpec",
    "DeviceClaimStatus",
    "DevicePool",
    "DevicePoolSpec",
    "DevicePoolStatus",
    "DeviceShare",
    "DeviceShareSpec",
    "DeviceShareStatus",
    "Phase",
]
