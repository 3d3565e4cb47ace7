"""What the kubelet asked of a driver, read from the driver's log: when devices were in a container's reach.

Comes in: a log, and which ResourceClaim had which devices. Goes out: `Call` values in the order of the log, and every
moment at which one device was prepared for two ResourceClaims.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum

UID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_LINE = re.compile(
    r'"handling request( succeeded)?".* method="/[\w./]+/Node(Prepare|Unprepare)Resources" (?:request|response)="(.*)"$'
)


class Verb(StrEnum):
    PREPARE = "Prepare"
    UNPREPARE = "Unprepare"


@dataclass(frozen=True, slots=True)
class Call:
    """Devices of these ResourceClaims (UIDs) come into reach, or are out of it for good."""

    verb: Verb
    claims: frozenset[str]


def read_calls(log: str) -> list[Call]:
    """In order. A preparation counts from its request on, an end from the driver's answer that it is done."""
    calls = []
    for line in log.splitlines():
        found = _LINE.search(line)
        if found is None:
            continue
        done, verb, text = bool(found[1]), Verb(found[2]), found[3]
        claims = frozenset(UID.findall(text))
        if claims and done == (verb is Verb.UNPREPARE) and not re.search(r"error:|Error:[^,]", text):
            calls.append(Call(verb, claims))
    return calls


def overlaps(calls: Iterable[Call], devices: Mapping[str, Collection[str]]) -> list[str]:
    """Every preparation of a device that another ResourceClaim still had, in words."""
    found = []
    holders: defaultdict[str, set[str]] = defaultdict(set)
    for number, call in enumerate(calls):
        for claim in sorted(call.claims):
            for device in devices.get(claim, ()):
                if call.verb is Verb.UNPREPARE:
                    holders[device].discard(claim)
                    continue
                holders[device].add(claim)
                if len(holders[device]) > 1:
                    found.append(f"call {number}: {device} is prepared for {sorted(holders[device])}")
    return found
