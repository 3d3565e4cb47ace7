"""One pool of a ledger: by position what is free and who has the rest, nodes by state, counts.

In come masks of devices that somebody holds, or no longer does; out come free sets, states of nodes and counts, kept up
from change to change. Who holds what beyond a mask is the `ledger`'s, and nothing here looks at a claim.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Hashable, Iterator, Sequence
from typing import TypeVar, cast

from adjoin_allocator.nodes import Counting, Nodes, NodeView, PoolIndex, Question, Sort, State
from adjoin_allocator.results import Counts
from adjoin_allocator.states import Classes, Masks, States
from adjoin_allocator.terms import DeviceState, Standing

QUESTIONS = 32
"""How many questions' buckets are kept up at once."""

IDLE = 16
"""So many decisions after they were last asked for, buckets are no longer kept up."""


class Buckets:
    """The open nodes of a pool by state, for one question; every bucket lists positions in ascending order."""

    def __init__(self, sorts: Sequence[Sort], index: PoolIndex, open_: Sequence[int]) -> None:
        self.sorts = sorts
        self.idle = 0
        self.states: dict[State, list[int]] = {}
        states, closed = self.states, index.closed
        for position, (view, sort, mask) in enumerate(zip(index.views, sorts, open_, strict=True)):
            if position not in closed:
                state = (view.shape, sort, mask)
                bucket = states.get(state)
                if bucket is None:
                    states[state] = [position]
                else:
                    bucket.append(position)

    def move(self, index: PoolIndex, position: int, before: int, after: int) -> None:
        """A node's free devices changed."""
        if position in index.closed:
            return
        shape, sort = index.views[position].shape, self.sorts[position]
        bucket = self.states[shape, sort, before]
        if len(bucket) == 1:
            del self.states[shape, sort, before]
        else:
            del bucket[bisect_left(bucket, position)]
        insort(self.states.setdefault((shape, sort, after), []), position)


STANDINGS = (Standing.UNHEALTHY, Standing.QUARANTINED, Standing.WITHHELD, Standing.UNGUARDED)
"""Standings of devices that are there and cannot be given, in the order of `Masks.standing`."""

STATES = {
    Standing.OFFERED: DeviceState.FREE,
    Standing.UNHEALTHY: DeviceState.UNHEALTHY,
    Standing.QUARANTINED: DeviceState.UNHEALTHY,
    Standing.WITHHELD: DeviceState.UNHEALTHY,
    Standing.UNGUARDED: DeviceState.RESERVED,
    Standing.MISSING: DeviceState.MISSING,
}
"""As what a device counts that nobody holds."""

_ORDER = ("free", "allocated", "reserved", "releasing", "unhealthy", "missing")
_FREE, _ALLOCATED, _RESERVED, _RELEASING, _UNHEALTHY, _MISSING = range(6)
_COUNTED: dict[Counting, int] = {standing: _ORDER.index(state) for standing, state in STATES.items()}
_COUNTED |= {DeviceState.ALLOCATED: _ALLOCATED, DeviceState.RELEASING: _RELEASING}

_NONE = (0,) * len(STANDINGS)

ANSWERS = 256
"""Answers about a pool that are remembered while nothing in it changes."""

_Answer = TypeVar("_Answer")


class PoolLedger:
    """One pool: by position what is free, and who has the rest.

    Attributes:
        free: By position the devices that can be given, each for itself.
        open: By position the node's part of a state: `free`, and where devices share counters what `budgets` says.
        version: What is in the ledger; equal numbers mean equal contents.
    """

    def __init__(self, nodes: Nodes, index: PoolIndex) -> None:
        self.index = index
        self.open = [view.state(0) for view in index.views] if index.counted else [view.offered for view in index.views]
        self.free = self._usable() if index.counted else self.open
        self.version = 0
        self._changes = 0
        self._nodes = nodes
        self._claims: dict[int, int] = {}
        self._claims_back: dict[int, int] = {}
        self._others: dict[int, int] = {}
        self._others_back: dict[int, int] = {}
        self._given: dict[int, int] = {}
        self._divided: dict[int, int] = {}
        self._divided_back: dict[int, int] = {}
        self._bound: dict[int, int] = {}
        self._lent: dict[int, int] = {}
        self.watcher: Callable[[int], None] | None = None
        """Called with a position when who holds devices there has changed."""
        self._held: dict[int, tuple[int, int]] = {}
        """By position what somebody has, and of it what is on its way back; positions where nobody has anything are
        left out."""
        self._current: States | None = None
        self._moved: set[int] = set()
        """Positions that may be in another state than that says: what is taken and given back before anybody asks for
        states moves nothing."""
        self._buckets: dict[int, Buckets] = {}
        self._answers: dict[Hashable, tuple[int, object]] = {}
        names = dict.fromkeys((*(name.name for name in index.pool.devices), *(kind for kind, _ in index.tally)))
        self._numbers = {name: (0, [0] * 6) for name in names}
        """By device name its capacity, and the other counts in the order of `DeviceCounts`."""
        for (name, stand), number in index.tally.items():
            capacity, numbers = self._numbers[name]
            numbers[_COUNTED[stand]] += number
            self._numbers[name] = (capacity + number, numbers)

    def back(self, position: int) -> int:
        """Devices of a node that are on their way back."""
        back = self._claims_back.get(position, 0) | self._others_back.get(position, 0)
        return back | self._divided_back.get(position, 0)

    @property
    def returning(self) -> frozenset[int]:
        """Positions of nodes with devices on their way back."""
        return frozenset(self._claims_back.keys() | self._others_back.keys() | self._divided_back.keys())

    def state(self, position: int, bit: int) -> DeviceState:
        """As what a device of a node counts."""
        view, (held, back) = self.index.views[position], self._held.get(position, (0, 0))
        stand = next(stand for stand, mask in view.standing.items() if mask >> bit & 1)
        if stand is Standing.OFFERED and not (self.free[position] | held | self.bound(position)) >> bit & 1:
            # Something else on its card is in somebody's hands.
            return DeviceState.ALLOCATED
        if stand is Standing.MISSING or not held >> bit & 1:
            return STATES[stand]
        return DeviceState.RELEASING if back >> bit & 1 else DeviceState.ALLOCATED

    def held(self, position: int) -> int:
        """Devices of a node that somebody has, those on their way back among them."""
        return self._held.get(position, (0, 0))[0]

    def entire(self, position: int) -> int:
        """Devices of a node that somebody has as wholes."""
        mine = self._claims.get(position, 0) | self._others.get(position, 0) | self._given.get(position, 0)
        return mine | self._claims_back.get(position, 0) | self._others_back.get(position, 0)

    def divided(self, position: int) -> int:
        """Devices of a node of which somebody has parts."""
        return self._divided.get(position, 0) | self._divided_back.get(position, 0)

    def claims(self, position: int) -> int:
        """Devices of a node that claims of the snapshot have."""
        return self._claims.get(position, 0) | self._claims_back.get(position, 0)

    def claimed_by(self, position: int, back: bool) -> int:
        """Devices of a node that claims of the snapshot have and keep, or give back."""
        return (self._claims_back if back else self._claims).get(position, 0)

    def others_back(self, position: int) -> int:
        """Devices of a node that others than the snapshot's claims give back."""
        return self._others_back.get(position, 0)

    def claimed(self, position: int, mask: int, back: bool, add: bool) -> None:
        """A claim of the snapshot holds these devices, or no longer does."""
        self._change(self._claims_back if back else self._claims, position, mask, add)

    def taken(self, position: int, mask: int, back: bool, add: bool) -> None:
        """Somebody else holds these devices, or no longer does."""
        self._change(self._others_back if back else self._others, position, mask, add)

    def give(self, position: int, mask: int, add: bool) -> None:
        """This decision gives these devices away, or takes that back."""
        self._change(self._given, position, mask, add)

    def divide(self, position: int, mask: int, back: bool, add: bool) -> None:
        """Somebody holds parts of these devices (all of it on its way back, or not), or nobody does any more."""
        self._change(self._divided_back if back else self._divided, position, mask, add)

    def bind(self, position: int, mask: int) -> None:
        """These devices, and no others of the node, serve one share alone for now: nobody gets one whole."""
        if self._bound.get(position, 0) == mask:
            return
        self._bound[position] = mask
        if not mask:
            del self._bound[position]
        self.touch()
        self._reopen(position, self._held.get(position, (0, 0))[0])

    def lend(self, position: int, mask: int, add: bool) -> None:
        """Others than the snapshot's claims hold parts of these devices, beside which there may be parts of claims."""
        self._change(self._lent, position, mask, add)

    def lent(self, position: int) -> int:
        """Devices of a node that are free but for what others than claims consume of them."""
        mask = self._lent.get(position, 0)
        if mask:
            mask &= self.index.views[position].offered & ~self.entire(position) & ~self.divided(position)
            mask &= ~self._bound.get(position, 0)
        return mask

    def outside(self, position: int) -> int:
        """Devices of a node that others than claims consume a part of, whoever has other parts."""
        return self._lent.get(position, 0)

    def bound(self, position: int) -> int:
        """Devices of a node that serve one share alone for now."""
        return self._bound.get(position, 0)

    def dwelling(self) -> Iterator[tuple[int, int]]:
        """By node such devices of which nobody has anything and that could be given but for that."""
        for position, mask in sorted(self._bound.items()):
            yield position, mask & self.index.views[position].offered & ~self._held.get(position, (0, 0))[0]

    def touch(self) -> None:
        """Somebody holds more or less of a divided device."""
        self._changes += 1
        self.version = self._changes

    def masks(self, position: int) -> Masks:
        """What is free on a node, and what is not and why."""
        view, (held, back) = self.index.views[position], self._held.get(position, (0, 0))
        shut = self.index.closed[position][0] if position in self.index.closed else ""
        state = self.open[position]
        if view.offered == view.whole and view.shape.counters is None:
            return Masks(shut, state, back & view.offered, _NONE)
        standing = tuple([view.standing[stand] & ~held for stand in STANDINGS])
        return Masks(shut, state, back & view.offered, standing)

    def states(self, question: Question) -> States:
        """Nodes in states that are each equal for the question, kept up from now on. The object is another one when
        what it says of a number no longer holds.
        """
        current = self.current
        classes = Classes(self._nodes, self.index) if current is None else current.classes
        if not classes.covers(question):
            classes = classes.refined(question)
        if current is None or current.classes is not classes:
            current = self._current = States(classes, map(self.masks, range(len(self.free))))
            self._moved.clear()
        return current

    @property
    def current(self) -> States | None:
        """Nodes in states, as they were last asked for, brought up to date."""
        if self._moved and self._current is not None:
            for position in self._moved:
                self._current.move(position, self.masks(position))
            self._moved.clear()
        return self._current

    def follow(self, index: PoolIndex) -> bool:
        """Takes another index for the same nodes and devices, of which some have changed. False when there are others
        now: then who holds what must be entered anew.
        """
        old = self.index
        if old.views is not index.views:
            if len(old.views) != len(index.views) or old.pool is not index.pool:
                return False
            for before, view in zip(old.views, index.views, strict=True):
                if before is not view and (before.name != view.name or not before.bit.same(view.bit)):
                    return False
        self.index = index
        if index.counted and self.free is self.open:
            self.free = self._usable()
        changed = {*(old.closed.keys() ^ index.closed.keys())}
        changed |= {at for at, why in index.closed.items() if old.closed.get(at, why) != why}
        anew = False
        if old.views is not index.views:
            for position, (before, view) in enumerate(zip(old.views, index.views, strict=True)):
                if before is not view:
                    changed.add(position)
                    anew = self._replace(position, before, view) or anew
        offered = {name.name for name in index.pool.devices}
        for name in [name for name, (capacity, _) in self._numbers.items() if not capacity and name not in offered]:
            del self._numbers[name]
        if anew:
            self._current = None
        if changed:
            self._changes += 1
            self.version = self._changes
            self._buckets.clear()
        self._moved |= changed
        return True

    def _replace(self, position: int, before: NodeView, view: NodeView) -> bool:
        """A node's devices are others by the same names. Returns whether the node is of a class that is new."""
        held, back = self._held.get(position, (0, 0))
        self._count(before, held, back, -1)
        for part, sign in ((before, -1), (view, 1)):
            for kind, stand, number in part.tally:
                capacity, numbers = self._numbers.get(kind, (0, [0] * 6))
                numbers[_COUNTED[stand]] += sign * number
                self._numbers[kind] = (capacity + sign * number, numbers)
        self._count(view, held, back, 1)
        self._open(position, view, held)
        return self._current is not None and self._current.classes.change(position, view)

    def tidy(self) -> None:
        """Between decisions: gives up what is mostly made of states that are no more, or not asked for any more."""
        if self._buckets:
            for key, buckets in list(self._buckets.items()):
                buckets.idle += 1
                if buckets.idle > IDLE:
                    del self._buckets[key]
        if self._current is not None and self._current.stale:
            self._current = States(self._current.classes, map(self.masks, range(len(self.free))))
            self._moved.clear()

    def buckets(self, sorts: Sequence[Sort]) -> Buckets:
        """Open nodes by state, kept up from now on. `sorts` are a question's, always the same object for it."""
        buckets = self._buckets.get(id(sorts))
        if buckets is None:
            while len(self._buckets) >= QUESTIONS:
                del self._buckets[next(iter(self._buckets))]
            buckets = self._buckets[id(sorts)] = Buckets(sorts, self.index, self.open)
        buckets.idle = 0
        return buckets

    def remembered(self, key: Hashable, make: Callable[[], _Answer]) -> _Answer:
        """An answer that depends on nothing but the key and what is in this pool's ledger, made once while that is
        the same.
        """
        known = self._answers.get(key)
        if known is not None and known[0] == self.version:
            return cast(_Answer, known[1])
        answer = make()
        if len(self._answers) >= ANSWERS:
            self._answers.clear()
        self._answers[key] = (self.version, answer)
        return answer

    def counts(self) -> Counts:
        """Devices by name, each counted once. Withheld devices count as unhealthy, unguarded ones as reserved, since
        neither can be given to anybody now.
        """
        return Counts({name: (capacity, *numbers) for name, (capacity, numbers) in self._numbers.items()})

    def _change(self, layer: dict[int, int], position: int, mask: int, add: bool) -> None:
        old = layer.get(position, 0)
        new = old | mask if add else old & ~mask
        if new:
            layer[position] = new
        elif old:
            del layer[position]
        self.touch()
        back = self._claims_back.get(position, 0) | self._others_back.get(position, 0)
        held = self._claims.get(position, 0) | self._others.get(position, 0) | self._given.get(position, 0)
        if self._divided or self._divided_back:
            back |= self._divided_back.get(position, 0)
            held |= self._divided.get(position, 0)
        if self._lent:
            held |= self._lent.get(position, 0)
        held |= back
        before = self._held.get(position, (0, 0))
        if before == (held, back):
            if self.watcher is not None:
                self.watcher(position)
            return
        if held:
            self._held[position] = (held, back)
        else:
            del self._held[position]
        view = self.index.views[position]
        if view.offered == view.whole and view.shape.counters is None:
            self._recount(view, *before, held, back)
        else:
            self._count(view, *before, -1)
            self._count(view, held, back, 1)
        self._reopen(position, held)

    def _reopen(self, position: int, held: int) -> None:
        """What is open on a node may be something else now."""
        free = self.open[position]
        self._open(position, self.index.views[position], held)
        self._moved.add(position)
        if self._buckets and free != self.open[position]:
            for buckets in self._buckets.values():
                buckets.move(self.index, position, free, self.open[position])
        if self.watcher is not None:
            self.watcher(position)

    def _open(self, position: int, view: NodeView, held: int) -> None:
        if self._bound:
            held |= self._bound.get(position, 0)
        self.open[position] = view.offered & ~held
        if view.shape.counters is not None:
            self.open[position] = view.state(held)
        if self.free is not self.open:
            self.free[position] = view.shape.usable(self.open[position])

    def _usable(self) -> list[int]:
        return [view.shape.usable(state) for view, state in zip(self.index.views, self.open, strict=True)]

    def _recount(self, view: NodeView, old: int, old_back: int, held: int, back: int) -> None:
        """Other devices of a node are held now, or on their way back; all of them are offered to whoever comes."""
        for kind, mask in view.shape.kinds.items():
            count = (mask & held).bit_count() - (mask & old).bit_count()
            releasing = (mask & back).bit_count() - (mask & old_back).bit_count() if back or old_back else 0
            if count or releasing:
                numbers = self._numbers[kind][1]
                numbers[_FREE] -= count
                numbers[_ALLOCATED] += count - releasing
                numbers[_RELEASING] += releasing

    def _count(self, view: NodeView, held: int, back: int, sign: int) -> None:
        """Adds a node's held devices to the counts, or takes them out. A missing device counts as missing whoever holds
        it, and one on its way back as such, whoever else holds it.
        """
        if not held:
            return
        if view.shape.counters is not None:
            for tally, direction in ((view.counted(held, back), sign), (view.tally, -sign)):
                for kind, stand, number in tally:
                    self._numbers[kind][1][_COUNTED[stand]] += direction * number
            return
        whole = view.offered == view.whole
        if not whole:
            held &= ~view.standing[Standing.MISSING]
        for kind, mask in view.shape.kinds.items():
            here = mask & held
            if here:
                numbers = self._numbers[kind][1]
                count = here.bit_count() * sign
                releasing = (here & back).bit_count() * sign if back else 0
                numbers[_RELEASING] += releasing
                numbers[_ALLOCATED] += count - releasing
                if whole:
                    numbers[_FREE] -= count
                    continue
                for stand, devices in view.standing.items():
                    if here & devices:
                        numbers[_COUNTED[stand]] -= (here & devices).bit_count() * sign
