"""Admission: what is made of pods and of our own kinds before they are stored, and what is refused.

In come AdmissionReviews; out go patches, refusals that name field, value and remedy, and warnings. It reads memory, and
where a pod names a claim that memory does not have yet, asks once for that claim with a time limit. Nothing here
writes, so dry runs are like any other.
"""

from adjoin.admission.endpoint import Memory, build_app
from adjoin.admission.pods import Refused, mutate_pod

__all__ = ["Memory", "Refused", "build_app", "mutate_pod"]
