"""How near the devices of a choice are to each other, in the words of status.

In come a signature, a wiring and the chosen devices by request; out come levels. Nothing is chosen here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from adjoin_allocator.cost import Mode, Signature, Term, line_terms
from adjoin_allocator.pairing import pair
from adjoin_allocator.terms import SCOPES, Scope
from adjoin_allocator.topology import Wiring, bits
from adjoin_allocator.wiring import LEVELS as RANK_LEVELS

LEVELS = ("NVLink", "PIX", "PXB", "PHB", "NODE", "SYS")
"""Words for the distance of a pair, nearest first."""


def reached(signature: Signature, wiring: Wiring, masks: Sequence[int]) -> Iterator[tuple[int, int, str]]:
    """For each two requests, and each request of several devices with itself, the farthest level of the pairs that
    count. Among pairings of equal sums the one with the fewest far pairs is meant.
    """
    devices = [tuple(bits(mask)) for mask in masks]
    banned: Mapping[Term, list[tuple[Scope, Mode]]] = {
        Term((one,), (other,)): [
            (line.scope, line.mode)
            for line in signature.scopes
            if line.required and Term((one,), (other,)) in line_terms(line.requests)
        ]
        for one in range(len(masks))
        for other in range(one + 1, len(masks))
    }
    for one, mine in enumerate(devices):
        if len(mine) > 1:
            yield one, one, _set_level(wiring, mine, masks[one])
        for other in range(one + 1, len(devices)):
            lines = banned[Term((one,), (other,))]

            def cost(a: int, b: int, lines: Sequence[tuple[Scope, Mode]] = lines) -> int | None:
                for scope, _ in lines:
                    if not wiring.met[scope][a] >> b & 1:
                        return None
                rank = wiring.rank[a][b]
                return rank << 160 | wiring.fine[a][b] << 80 | 1 << 13 * LEVELS.index(wiring.level[a][b])

            found = pair(mine, devices[other], cost)
            if found and found[1]:
                yield one, other, _farthest(wiring, found[1])


def _set_level(wiring: Wiring, devices: Sequence[int], mask: int) -> str:
    """The level of all devices of one request together: that of the farthest pair, or a farther one where lists match
    pair by pair and the whole set shares no value.
    """
    level = _farthest(wiring, [(one, other) for at, one in enumerate(devices) for other in devices[at + 1 :]])
    rank = max(wiring.rank[one][other] for one in devices for other in devices)
    shared = next(scope.rank for scope in SCOPES[rank:] if wiring.share(scope, mask))
    return level if shared == rank else RANK_LEVELS[shared]


def _farthest(wiring: Wiring, pairs: Sequence[tuple[int, int]]) -> str:
    return max((wiring.level[one][other] for one, other in pairs), key=LEVELS.index)
