"""The cards of one kind of a pool as arrays: what is left of each, of the parts in use, and of their hosts.

In come what is free, which parts are held and what hosts have left, node by node as it changes; out come arrays with a
row a node and a column a card, and a log of the rows that changed. Nothing here knows claims, or chooses.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from adjoin_allocator.card_rules import MANY, UNUSED, Use
from adjoin_allocator.model import Share
from adjoin_allocator.rulebook import CardClass, rule
from adjoin_allocator.sharing import AMOUNTS, MILLI, Part
from adjoin_allocator.terms import ShareMode

Booleans = NDArray[np.bool_]
Integers = NDArray[np.int64]

NO_LIMIT = 1 << 50
"""What a host without known limits has of everything."""


@dataclass(frozen=True, slots=True)
class Wish:
    """What a replica asks for of one kind of card and of the host.

    Attributes:
        count: Whole cards, or parts.
        share: The DeviceShare of the parts; empty for whole cards.
        part: What each part is; None for whole cards.
        together: All parts come from one card.
        only: Which cards will do: index of a row of the stock's eligibility; 0 is all of them.
        cpu_milli: Thousandths of a core.
        memory_kib: Host memory, rounded up.
        apart: Cards whose holders want quiet neighbours will not do.
        parts: From how many cards parts are taken.
    """

    count: int
    share: str = ""
    part: Part | None = None
    together: bool = False
    only: int = 0
    cpu_milli: int = 0
    memory_kib: int = 0
    apart: bool = False
    parts: int = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "parts", 0 if self.part is None else 1 if self.together else self.count)

    @property
    def of_each(self) -> Part:
        """What is taken of each of these cards."""
        assert self.part is not None
        return self.part.times(self.count) if self.together else self.part


Used = tuple[int, int, Use, bool]
"""What is in use of a card in a mode: its column, index of the share, the use; whether parts of it may be given to
somebody."""

Row = tuple[int, tuple[Used, ...], int, int, int]
"""A node: which columns are free as wholes, as bits; divided cards; thousandths of a core and KiB that are left; which
columns are free but for what others consume of them, as bits."""


class Stock:
    """The cards of one kind of a pool and the hosts they sit in: a row a node, a column a card.

    Attributes:
        selected: By share the cards that it may divide.
        in_mode: By share how many cards it divides.
        standing: 0 for cards of which nothing can be given, 1 for free ones, -1 for those that are free but for what
            others consume of them, above 1 the share of usable parts.
        place: By class and thousandths left: where a card stands in a table of these.
        whole: Free cards of each node.
        spread: By number of free cards how many nodes have so many.
        host: What is left of each host: thousandths of cores, KiB of memory.
        rules: By share and class of card what the one makes of the other.
        caps: By share and class the units that there are to give.
        faces: Classes and uses of cards that are cut into partitions; by its place here a card is known in `used`.
        heavy: How many cards have more in use by parts than thousandths tell.
        hushed: By node, as bits, the columns of cards whose holders want quiet neighbours.
        log: Nodes that have changed, in the order in which they did.
    """

    def __init__(self, cards: Sequence[Sequence[CardClass]], shares: Sequence[Share]) -> None:
        """`cards` has the class of each card by node. Nothing is free, no share divides anything and no host has a
        limit, until that is said.
        """
        rows, columns = len(cards), max((len(row) for row in cards), default=0)
        self.shape = (rows, columns)
        classes = sorted({each for row in cards for each in row})
        self.classes = classes
        self.exists = np.zeros(self.shape, dtype=bool)
        self.klass = np.zeros(self.shape, dtype=np.int64)
        number = {each: at for at, each in enumerate(classes)}
        for at, row in enumerate(cards):
            self.exists[at, : len(row)] = True
            self.klass[at, : len(row)] = [number[each] for each in row]
        self.shares = tuple(shares)
        self.share_at = {share.name: at for at, share in enumerate(shares)}
        self.rules = [[rule(share, each) for each in classes] for share in shares]
        self.cut = [
            share.mode is ShareMode.PARTITIONED
            or (share.mode in AMOUNTS and any(policy or lent for _, _, policy, lent in classes))
            for share in shares
        ]
        """By share whether its cards have to be asked one by one what fits: sums of what is asked do not tell."""
        caps = [[each.room for each in row] for row in self.rules]
        self.caps = np.array(caps, dtype=np.int64).reshape(len(shares), len(classes))
        self._classes: list[list[int]] = self.klass.tolist()
        self.selected = [np.zeros(self.shape, dtype=bool) for _ in shares]
        self.in_mode = [0] * len(shares)
        self.standing = np.zeros(self.shape, dtype=np.int64)
        self.place = self.klass * (MILLI + 1)
        self.whole = np.zeros(rows, dtype=np.int64)
        self.spread: dict[int, int] = {0: rows}
        self.host = np.full((2, rows), NO_LIMIT, dtype=np.int64)
        self.closed = np.zeros(rows, dtype=bool)
        self.faces: list[tuple[int, Use]] = []
        self._faces: dict[tuple[int, Use], int] = {}
        self._made: dict[int, tuple[tuple[int, int], ...]] = {}
        self.heavy = 0
        self.hushed: dict[int, int] = {}
        self.log: list[int] = []
        self.eligible: list[Booleans] = [self.exists]
        nothing: Row = (0, (), NO_LIMIT, NO_LIMIT, 0)
        self._known = [nothing] * rows
        """By node what was put there last."""
        self._cards = [([0] * columns, each) for each in self.place.tolist()]
        self._used = np.zeros((4, rows, columns), dtype=np.int64)
        self._used[0] = -1
        self._stale: set[int] = set()
        """Nodes of which that is not in `_used` yet."""
        self._masks: dict[tuple[str, int], Booleans | None] = {}
        self._apart: dict[tuple[str, int], Booleans] = {}
        """Likewise, without the cards that are to be kept quiet."""
        self._others = np.ones(self.shape, dtype=bool)
        """All cards but these."""

    def put(self, position: int, row: Row) -> None:
        """What a node has now."""
        before = self._known[position]
        if before == row:
            return
        self._known[position] = row
        free, used, self.host[0, position], self.host[1, position], lent = row
        self.log.append(position)
        if (before[0], before[1], before[4]) == (free, used, lent):
            return
        classes = self._classes[position]
        standing = [(free >> column & 1) - (lent >> column & 1) for column in range(len(classes))]
        left = [self._whole(classes[column], each) for column, each in enumerate(standing)]
        for column, share, use, usable in used:
            if usable and not standing[column]:
                left[column] = self.rules[share][classes[column]].left_milli(use)
                standing[column] = 2 + share
            self.in_mode[share] += 1
            self.heavy += use[0] > 0 or use[2] > 0
        for _, share, use, _ in before[1]:
            self.in_mode[share] -= 1
            self.heavy -= use[0] > 0 or use[2] > 0
        place = [klass * (MILLI + 1) + each for klass, each in zip(classes, left, strict=True)]
        stood, were = self._cards[position]
        for column, (stands, at) in enumerate(zip(standing, place, strict=True)):
            # Of a node one or two cards change at once.
            if stands != stood[column]:
                self.standing[position, column] = stands
            if at != were[column]:
                self.place[position, column] = at
        self._cards[position] = (standing, place)
        self._stale.add(position)
        whole, known = free.bit_count(), before[0].bit_count()
        if known != whole:
            self.spread[known] -= 1
            self.spread[whole] = self.spread.get(whole, 0) + 1
            self.whole[position] = whole

    def _whole(self, klass: int, standing: int) -> int:
        """Thousandths of a card of which nobody of ours has anything."""
        memory, _, _, lent = self.classes[klass]
        if standing >= 0:
            return MILLI * standing
        return max(0, MILLI - -(-lent[0] * MILLI // memory)) if memory and lent else MILLI

    def make(self, position: int, made: tuple[tuple[int, int], ...]) -> None:
        """Which cards of a node are in the mode of which share without anybody holding anything of them."""
        if self._made.get(position, ()) == made:
            return
        self._made[position] = made
        if not made:
            del self._made[position]
        self.log.append(position)

    @property
    def modes(self) -> bool:
        """Whether any card is in a mode without anybody holding anything of it."""
        return bool(self._made)

    def made(self, share: int) -> Booleans | None:
        """Cards in a share's mode of which nobody holds anything; None where there are none."""
        if not self._made:
            return None
        found = np.zeros(self.shape, dtype=bool)
        for position, cards in self._made.items():
            for column, at in cards:
                found[position, column] = at == share or share < 0
        return found

    def hush(self, position: int, columns: int) -> None:
        """Which of a node's cards are to be kept quiet now."""
        if columns != self.hushed.get(position, 0):
            self.hushed[position] = columns
            if not columns:
                del self.hushed[position]
            self._others[position] = [not columns >> column & 1 for column in range(self.shape[1])]
            self._apart.clear()
            self.log.append(position)

    def node(self, position: int) -> tuple[list[int], list[int], Row]:
        """Standing and place of a node's cards, and what was put there: what the arrays say, without them."""
        return *self._cards[position], self._known[position]

    @property
    def cpu(self) -> Integers:
        """Thousandths of cores that hosts have left."""
        row: Integers = self.host[0]
        return row

    @property
    def memory(self) -> Integers:
        """KiB that hosts have left."""
        row: Integers = self.host[1]
        return row

    @property
    def free(self) -> Booleans:
        """Cards that are free as wholes."""
        found: Booleans = self.standing == 1
        return found

    @property
    def fresh(self) -> Booleans:
        """Cards that a share may divide: those, and such of which others consume a part."""
        found: Booleans = np.abs(self.standing) == 1
        return found

    @property
    def usable(self) -> Booleans:
        """Cards in a mode whose parts may be given to somebody."""
        found: Booleans = self.standing > 1
        return found

    @property
    def used(self) -> Integers:
        """Four tables of cards: the share that divides each, or -1; units, thousandths and clients that are in use, or
        in place of clients a card's face.
        """
        for position in self._stale:
            self._used[0, position], self._used[1:, position] = -1, 0
            for column, share, use, _ in self._known[position][1]:
                units, milli, clients = use
                if self.cut[share]:
                    clients = self.face(self._classes[position][column], use)
                self._used[:, position, column] = share, units, milli, clients
        self._stale.clear()
        return self._used

    def face(self, klass: int, use: Use) -> int:
        """The number of a class and use of a card that is cut into partitions."""
        found = self._faces.get((klass, use))
        if found is None:
            found = self._faces[klass, use] = len(self.faces)
            self.faces.append((klass, use))
        return found

    def use(self, position: int, column: int) -> tuple[int, Use] | None:
        """The share that divides a card, and what of it is in use; None where none does."""
        return next(((share, use) for at, share, use, _ in self._known[position][1] if at == column), None)

    def fitting(self, at: int, part: Part) -> Booleans:
        """Cards of which a share's part would fit beside what the share has given of them."""
        if self.cut[at]:
            rules, mode = self.rules[at], self.used[0]
            fresh = np.array([each.after(UNUSED, part) is not None for each in rules], dtype=bool)
            # Faces of other shares are no uses that this one's rules know; they are masked out below.
            can = [rules[klass].knows(use) and rules[klass].after(use, part) is not None for klass, use in self.faces]
            opened = np.array(can or [False], dtype=bool)[np.where(mode == at, self.used[3], 0)]
            return np.asarray(np.where(mode == at, opened, fresh[self.klass]), dtype=bool)
        found: Booleans = self.free_units(at) >= part.units
        found &= self.free_milli(at) >= part.milli
        return found & self.gives(at, part)

    def gives(self, at: int, part: Part) -> Booleans:
        """Cards of which a share can give anything at all: there is room for so many users more, and not more in use
        than the share gives by now.
        """
        found: Booleans = self.free_clients(at) >= max(1, part.clients)
        return found & ~self.overdrawn(at)

    def overdrawn(self, at: int) -> Booleans:
        """Cards of which more units are in use than the share gives by now."""
        return np.asarray(self._of(at, 1) > self.caps[at][self.klass], dtype=bool)

    def free_units(self, at: int) -> Integers:
        """By card the units that a share has left of it."""
        found: Integers = np.maximum(self.caps[at][self.klass] - self._of(at, 1), 0)
        return found

    def free_milli(self, at: int) -> Integers:
        """Likewise the thousandths."""
        found: Integers = np.maximum(MILLI - self._of(at, 2), 0)
        return found

    def free_clients(self, at: int) -> Integers:
        """Likewise how many parts more; of partitions it is not known."""
        if self.shares[at].mode is ShareMode.PARTITIONED:
            return np.full(self.shape, MANY, dtype=np.int64)
        clients = np.array([each.most for each in self.rules[at]], dtype=np.int64)
        taken = self._of(at, 3)
        if self.cut[at]:
            # The table has faces; those of partitions, whose numbers are no clients, are masked out below.
            clients_of = np.array([min(use[2], MANY) for _, use in self.faces] or [0], dtype=np.int64)
            taken = np.where(self.used[0] == at, clients_of[taken], 0)
        found: Integers = np.maximum(clients[self.klass] - taken, 0)
        return found

    def _of(self, at: int, table: int) -> Integers:
        found: Integers = np.where(self.used[0] == at, self.used[table], 0)
        return found

    def most(self, at: int, among: Booleans) -> tuple[int, int, int]:
        """The most units, thousandths and clients that one of these cards has left."""
        left = (self.free_units(at), self.free_milli(at), self.free_clients(at))
        units, milli, clients = (int(each[among].max(initial=0)) for each in left)
        return units, milli, clients

    def best_told(self, at: int, among: Booleans) -> str:
        """What the one of these cards has left, in words, that has most."""
        best, words = -1, "nothing"
        for position, column in np.argwhere(among).tolist():
            used, rules = self.use(position, column), self.rules[at]
            use = UNUSED if used is None else used[1]
            left = rules[self.klass.item(position, column)].left_milli(use)
            if left > best:
                best, words = left, rules[self.klass.item(position, column)].told(use)
        return words

    def left(self, at: int, among: Booleans) -> tuple[int, int]:
        """The units and thousandths that these cards have left together."""
        return int(self.free_units(at)[among].sum()), int(self.free_milli(at)[among].sum())

    def openings(self, share: str) -> int | None:
        """How many cards more a share may divide; None without a limit."""
        at = self.share_at[share]
        limit = self.shares[at].max_devices
        return None if limit is None else max(0, limit - self.in_mode[at])

    def mask(self, wish: Wish) -> Booleans | None:
        """Which cards will do for a wish, as far as selectors go; None for all."""
        key = (wish.share, wish.only)
        if key not in self._masks:
            found = self.eligible[wish.only]
            if wish.share:
                found = found & self.selected[self.share_at[wish.share]]
            self._masks[key] = None if bool((found == self.exists).all()) else found
        return self._away(key) if wish.apart and self.hushed else self._masks[key]

    def _away(self, key: tuple[str, int]) -> Booleans:
        """The mask of that key without the cards that are to be kept quiet."""
        found = self._apart.get(key)
        if found is None:
            known = self._masks[key]
            found = self._apart[key] = (self.exists if known is None else known) & self._others
        return found

    def room(self, wish: Wish) -> Booleans:
        """By node whether its host has room."""
        room: Booleans = (self.cpu >= wish.cpu_milli) & (self.memory >= wish.memory_kib) & ~self.closed
        return room
