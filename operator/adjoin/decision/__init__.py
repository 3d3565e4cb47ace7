"""One decision: a view and the time in, the writes that are missing out.

It is the same for a fresh process and one that ran for a month: what is remembered between calls changes speed alone.
Nothing is asked of the API server, nothing is written, and what is in the hands of the writer (a busy subject) is left
alone until it has ended.
"""

from adjoin.decision.decider import Decider, Decision
from adjoin.decision.scene import turn

__all__ = ["Decider", "Decision", "turn"]
