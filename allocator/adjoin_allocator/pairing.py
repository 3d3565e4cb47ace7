"""Who is paired with whom between two sets of devices: an exact assignment of least cost.

In come the cost of each pair (None where a pair is not allowed) and the sides; out come the pairs. Each device of the
larger side gets one of the smaller side, spread evenly: a device of the smaller side gets the floor or the ceiling of
the ratio. This is the general way; the search itself prices pairings on the tree without making them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

Cost = Callable[[int, int], int | None]


def pair(left: Sequence[int], right: Sequence[int], cost: Cost) -> tuple[int, tuple[tuple[int, int], ...]] | None:
    """The least sum of costs and its pairs (left, right), or None when no allowed pairing exists.

    `cost` is asked for (left, right) and is not negative.
    """
    if not left or not right:
        return 0, ()
    swapped = len(left) > len(right)
    small, large = (right, left) if swapped else (left, right)
    floor, extra = divmod(len(large), len(small))
    # A device of the smaller side is as many slots as it may have partners. Those up to the floor must all be filled:
    # each is worth more than all distances together.
    slots = [one for one in small for _ in range(floor + bool(extra))]
    must = [place < floor for _ in small for place in range(floor + bool(extra))]
    table = [[cost(other, one) if swapped else cost(one, other) for one in slots] for other in large]
    known = [value for row in table for value in row if value is not None]
    bonus = (max(known, default=0) + 1) * (len(large) + 1) if extra else 0
    wall = (bonus + max(known, default=0) + 1) * (len(large) + 1)
    weights = [
        [
            wall + bonus if value is None else value + (0 if needed else bonus)
            for value, needed in zip(row, must, strict=True)
        ]
        for row in table
    ]
    chosen = _assign(weights)
    pairs = []
    total = 0
    filled = 0
    for place, slot in enumerate(chosen):
        value = table[place][slot]
        if value is None:
            return None
        total += value
        filled += must[slot]
        pairs.append((large[place], slots[slot]) if swapped else (slots[slot], large[place]))
    if filled < floor * len(small):
        return None
    return total, tuple(sorted(pairs))


def _assign(weights: Sequence[Sequence[int]]) -> list[int]:
    """A column for each row, no column twice, of least total weight (rows ≤ columns): the Hungarian method with
    potentials, which adds one row at a time along a shortest augmenting path.
    """
    rows, columns = len(weights), len(weights[0])
    over_row, over_column = [0] * (rows + 1), [0] * (columns + 1)
    owner = [0] * (columns + 1)
    for row in range(1, rows + 1):
        owner[0] = row
        column = 0
        slack: list[int | None] = [None] * (columns + 1)
        back = [0] * (columns + 1)
        done = [False] * (columns + 1)
        while owner[column]:
            done[column] = True
            at = owner[column]
            line, potential = weights[at - 1], over_row[at]
            nearest, step = 0, None
            for other in range(1, columns + 1):
                if done[other]:
                    continue
                reduced = line[other - 1] - potential - over_column[other]
                known = slack[other]
                if known is None or reduced < known:
                    slack[other] = known = reduced
                    back[other] = column
                # Among equals a free column ends the path at once.
                if step is None or known < step or (known == step and not owner[other]):
                    nearest, step = other, known
            assert step is not None
            for other in range(columns + 1):
                if done[other]:
                    over_row[owner[other]] += step
                    over_column[other] -= step
                elif (left := slack[other]) is not None:
                    slack[other] = left - step
            column = nearest
        while column:
            owner[column] = owner[back[column]]
            column = back[column]
    chosen = [0] * rows
    for column in range(1, columns + 1):
        if owner[column]:
            chosen[owner[column] - 1] = column - 1
    return chosen
