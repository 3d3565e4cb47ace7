"""All input of one decision, frozen.

A snapshot is made by a caller from what it knows and never changes. Parts that did not change are shared by identity
between
consecutive snapshots (the tuple of a node's devices, a Node, a Pool, a Claim), so that whatever is compiled from
them can be kept by
identity; sharing may change speed and nothing else.

A snapshot that differs from another in a few claims is made by `Snapshot.edited`: it costs the claims that differ, and
whoever followed the first follows to the second at that price. So "what if these claims were not there" is a snapshot
too.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import NamedTuple, overload

from adjoin_allocator.model import Claim, ClaimUID, Device, DeviceID, Hold, Mode, Node, Pool, Share

REMEMBERED = 16
"""Edits that a collection of claims remembers: so far apart two of them may be for one to be followed from the
other."""

FOLDED = 512
"""Claims that may differ from the base; beyond, a new base is made."""

Ticket = int
"""The place of a claim in the order of the input; an edit changes no other claim's."""


class Edit(NamedTuple):
    """What came in place of what between two collections of claims, with tickets. `before` is the mark of the first."""

    before: object
    removed: tuple[tuple[Ticket, Claim], ...]
    added: tuple[tuple[Ticket, Claim], ...]

    @property
    def back(self) -> Edit:
        """The edit that undoes it."""
        return Edit(None, self.added, self.removed)


class Claims(Sequence[Claim]):
    """Claims in the order of the input, immutable, and cheap to make of others by an edit.

    Attributes:
        mark: What edits know this collection by.
        history: The last edits that led here.
    """

    __slots__ = ("_base", "_extra", "_next", "_over", "_places", "_size", "_tickets", "_where", "history", "mark")

    def __init__(self, claims: tuple[Claim, ...]) -> None:
        self.mark: object = claims
        self.history: tuple[Edit, ...] = ()
        self._base = claims
        self._tickets: Sequence[Ticket] = range(len(claims))
        self._places = _Places(self._base, self._tickets)
        self._over: Mapping[Ticket, Claim | None] = {}
        self._extra: Mapping[Ticket, Claim] = {}
        self._where: Mapping[ClaimUID, Ticket] = {}
        self._next: Ticket = len(claims)
        self._size = len(claims)

    def __len__(self) -> int:
        return self._size

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Claims):
            return self is other or tuple(self) == tuple(other)
        return tuple(self) == other if isinstance(other, tuple) else NotImplemented

    def __hash__(self) -> int:
        return hash(tuple(self))

    def __repr__(self) -> str:
        return f"Claims({tuple(self)!r})"

    def __iter__(self) -> Iterator[Claim]:
        return (claim for _, claim in self.ticketed())

    @overload
    def __getitem__(self, at: int) -> Claim: ...
    @overload
    def __getitem__(self, at: slice) -> tuple[Claim, ...]: ...
    def __getitem__(self, at: int | slice) -> Claim | tuple[Claim, ...]:
        """By place in the order, at the cost of a walk after an edit."""
        return (self._base if not self._over and not self._extra else tuple(self))[at]

    def ticketed(self) -> Iterator[tuple[Ticket, Claim]]:
        """All claims with their tickets, which ascend."""
        if not self._over:
            return chain(zip(self._tickets, self._base, strict=True), self._extra.items())
        over = self._over
        mine = (
            (ticket, kept)
            for ticket, claim in zip(self._tickets, self._base, strict=True)
            if (kept := over.get(ticket, claim)) is not None
        )
        return chain(mine, self._extra.items())

    def edited(self, put: Iterable[Claim], drop: Iterable[ClaimUID]) -> Claims:
        """See `Snapshot.edited`."""
        put, drop = tuple(put), tuple(drop)
        if not self._places.distinct:
            return self._rewritten(put, drop)
        over, extra, where, next_ = dict(self._over), dict(self._extra), dict(self._where), self._next
        removed: dict[Ticket, Claim] = {}
        added: dict[Ticket, Claim] = {}

        def leave(ticket: Ticket, claim: Claim) -> None:
            # What this very edit added leaves no trace.
            if added.pop(ticket, None) is None:
                removed[ticket] = claim

        def find(uid: ClaimUID) -> tuple[Ticket, Claim] | None:
            ticket = where.get(uid)
            if ticket is not None:
                return ticket, extra[ticket]
            known = self._places.find(uid)
            if known is None:
                return None
            claim = over.get(known[0], known[1])
            return None if claim is None else (known[0], claim)

        for uid in drop:
            known = find(uid)
            if known is None:
                raise KeyError(uid)
            ticket, claim = known
            leave(ticket, claim)
            if uid in where:
                del extra[where.pop(uid)]
            else:
                over[ticket] = None
        for claim in put:
            known = find(claim.uid)
            if known is None:
                ticket, next_ = next_, next_ + 1
                where[claim.uid] = ticket
                extra[ticket] = claim
            else:
                ticket, old = known
                if old is claim:
                    continue
                leave(ticket, old)
                if claim.uid in where:
                    extra[ticket] = claim
                else:
                    over[ticket] = claim
            added[ticket] = claim
        if not removed and not added:
            return self
        made = object.__new__(Claims)
        made.mark = object()
        made.history = (
            *self.history[1 - REMEMBERED :],
            Edit(self.mark, tuple(removed.items()), tuple(added.items())),
        )
        made._base, made._tickets, made._places = self._base, self._tickets, self._places
        made._over, made._extra, made._where, made._next = over, extra, where, next_
        made._size = self._size - len(removed) + len(added)
        if len(over) + len(extra) > FOLDED:
            made._fold()
        return made

    def _fold(self) -> None:
        pairs = tuple(self.ticketed())
        self._tickets = tuple(ticket for ticket, _ in pairs)
        self._base = tuple(claim for _, claim in pairs)
        self._places = _Places(self._base, self._tickets)
        self._over, self._extra, self._where = {}, {}, {}

    def _rewritten(self, put: tuple[Claim, ...], drop: tuple[ClaimUID, ...]) -> Claims:
        """Two claims have one UID: which of them is meant is not known, so both go."""
        present = {claim.uid for claim in self}
        for uid in drop:
            if uid not in present:
                raise KeyError(uid)
        gone = {*drop}
        new = {claim.uid: claim for claim in put}
        made: list[Claim] = []
        for claim in self:
            if claim.uid in new:
                made += (found,) if (found := new.pop(claim.uid)) else ()
                gone.add(claim.uid)
            elif claim.uid not in gone:
                made.append(claim)
        return Claims((*made, *new.values()))


class _Places:
    """Where the claims of a base stand, by UID; made when first asked."""

    __slots__ = ("_by_uid", "_claims", "_tickets")

    def __init__(self, claims: Sequence[Claim], tickets: Sequence[Ticket]) -> None:
        self._claims = claims
        self._tickets = tickets
        self._by_uid: dict[ClaimUID, tuple[Ticket, Claim]] | None = None

    @property
    def distinct(self) -> bool:
        """Whether no two claims have one UID."""
        return len(self._made()) == len(self._claims)

    def find(self, uid: ClaimUID) -> tuple[Ticket, Claim] | None:
        """Ticket and claim, as they are in the base."""
        return self._made().get(uid)

    def _made(self) -> dict[ClaimUID, tuple[Ticket, Claim]]:
        if self._by_uid is None:
            pairs = zip(self._tickets, self._claims, strict=True)
            self._by_uid = {claim.uid: (ticket, claim) for ticket, claim in pairs}
        return self._by_uid


def path(old: Claims, new: Claims) -> list[Edit] | None:
    """The edits that lead from one collection to another, or None when none are known."""
    mark = old.mark
    if new.history and new.history[-1].before is mark:
        # The new one is the old one's next: so it is mostly.
        return [new.history[-1]]
    back: list[Edit] = []
    # Back from the old one, mark by mark, until the new one comes from there.
    for edit in (*reversed(old.history), None):
        if mark is new.mark:
            return back
        for at, step in enumerate(new.history):
            if step.before is mark:
                return [*back, *new.history[at:]]
        if edit is not None:
            back.append(edit.back)
            mark = edit.before
    return None


@dataclass(frozen=True, slots=True, eq=False)
class Snapshot:
    """What exists and what is asked, at one instant.

    Attributes:
        pools: By name.
        nodes: By name; every node that `inventory` names is here (made up where there is no object).
        inventory: By node name every device of every pool there, in stable order, whatever its standing and holder.
        claims: All claims, in input order.
        holds: Devices that are taken although no claim of the snapshot holds them.
        shares: DeviceShares by name.
        modes: Devices that are in a share's mode, whether or not somebody holds a part of them.
    """

    pools: Mapping[str, Pool]
    nodes: Mapping[str, Node]
    inventory: Mapping[str, tuple[Device, ...]]
    claims: Sequence[Claim]
    holds: Mapping[DeviceID, Hold]
    shares: Mapping[str, Share] = field(default_factory=dict)
    modes: Mapping[DeviceID, Mode] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not isinstance(self.claims, Claims):
            object.__setattr__(self, "claims", Claims(tuple(self.claims)))

    @property
    def followable(self) -> Claims:
        """The claims, with where they came from."""
        assert isinstance(self.claims, Claims)
        return self.claims

    def edited(self, put: Iterable[Claim] = (), drop: Iterable[ClaimUID] = ()) -> Snapshot:
        """This snapshot with some claims put in the place of those of the same UID, or at the end where there is none,
        and others dropped; all else is shared. Dropping comes first. Costs O(change), the first edit also a walk over
        all claims.

        Raises:
            KeyError: A claim is dropped that is not there.
        """
        made = self.followable.edited(put, drop)
        return self if made is self.claims else replace(self, claims=made)
