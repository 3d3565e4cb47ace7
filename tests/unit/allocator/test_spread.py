"""How members are spread over the tree: equal to trying everything, whatever the names and the order."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from tests.support import gang_oracle, make
from tests.support.gang_oracle import Case

from adjoin_allocator.fabric import FabricTree, grow
from adjoin_allocator.ground import Ground
from adjoin_allocator.model import FabricLevel
from adjoin_allocator.nodes import Nodes
from adjoin_allocator.spread import Layout, Spreader, Wish


def tree_of(case: Case) -> FabricTree:
    levels = tuple(FabricLevel(f"level-{at}", f"net/{at}") for at in range(case.levels))
    devices = [make.device("gpu-0", f"n{at}") for at in range(len(case.paths))]
    snapshot = make.snapshot(devices, pools=[make.pool(fabric=levels)])
    return grow(Nodes().index(snapshot)[make.POOL], levels, case.paths)


def layouts(case: Case, tree: FabricTree | None = None) -> Sequence[Layout]:
    tree = tree or tree_of(case)
    ground = Ground(tree, np.array(case.rooms), np.array(case.held))
    inside = ground.common(case.required) if case.required >= 0 else None
    if inside == -1:
        return []
    wish = Wish(
        number=case.number,
        least=case.least,
        required=case.required,
        preferred=case.preferred,
        inside=inside,
        size=case.size,
        level=case.segment_level,
    )
    return Spreader(ground, wish).layouts()


def counts_of(case: Case, layout: Layout) -> list[int]:
    """By node how many members go there: of a share's nodes the first ones are full."""
    counts = [0] * len(case.paths)
    for lot in layout.lots:
        for share in (share for bench in lot.benches for share in bench):
            left = share.number
            for position in share.positions:
                counts[position] = min(share.room, left)
                left -= counts[position]
            assert left == 0
    return counts


def pieces_fit(case: Case, layout: Layout) -> bool:
    """Each lot's pieces are its members, and no segment is used twice."""
    fulls, tail = divmod(case.number, case.size) if case.size else (0, 0)
    number = 0
    for lot in layout.lots:
        if not lot.pieces:
            assert len(layout.lots) == 1
            return True
        assert sum(lot.pieces) == sum(share.number for bench in lot.benches for share in bench)
        plain = lot.pieces[:-1] if lot.tail else lot.pieces
        assert all(0 < piece <= case.size for piece in plain)
        assert not lot.tail or 0 < lot.pieces[-1] <= tail
        number += len(plain)
    return number <= fulls and sum(lot.tail for lot in layout.lots) <= 1


def random_case(chance: random.Random) -> Case:
    """Up to six nodes under up to three levels, labels missing here and there, finer values under several coarser."""
    levels = chance.choice((0, 1, 2, 2, 2, 3))
    paths = []
    for _ in range(chance.randint(1, 6)):
        path = [chance.choice("abc"[: chance.choice((1, 2, 2, 3))]) for _ in range(levels)]
        known = levels if chance.random() < 0.85 else chance.randint(0, levels)
        paths.append(tuple(path[:known]))
    number = chance.randint(1, 7)
    required = chance.choice((-1, -1, chance.randint(-1, levels - 1)))
    placed = chance.random() < 0.25
    return Case(
        paths=tuple(paths),
        levels=levels,
        rooms=tuple(chance.choice((0, 1, 1, 2, 3)) for _ in paths),
        held=tuple(chance.choice((0, 0, 1, 2)) if placed else 0 for _ in paths),
        number=number,
        least=chance.choice((1, number, number, chance.randint(1, number))),
        required=required,
        preferred=chance.choice((-1, chance.randint(-1, levels - 1))),
        size=chance.choice((0, 0, 1, 2, 2, 3, 4)) if levels else 0,
        segment_level=chance.randint(0, levels - 1) if levels else -1,
    )


def held_apart(case: Case) -> bool:
    domains = {case.domain(node, case.required) for node, count in enumerate(case.held) if count}
    return case.required >= 0 and (len(domains) > 1 or None in domains)


@pytest.mark.parametrize("seed", range(6))
def test_a_spread_is_as_good_as_any(seed: int) -> None:
    chance = random.Random(seed)
    compared = incomplete = 0
    for _ in range(150):
        case = random_case(chance)
        wanted = gang_oracle.best(case)
        found = layouts(case)
        if wanted is None or held_apart(case):
            assert not found, case
            continue
        assert found, case
        for layout in found:
            counts = counts_of(case, layout)
            assert gang_oracle.allowed(case, counts), case
            assert pieces_fit(case, layout), case
            mine = gang_oracle.reach(case, counts)
            assert (layout.members, layout.level) == (mine.members, mine.level), case
            assert (mine.members, mine.level) == (wanted.members, wanted.level), case
            if case.segmented and wanted.members < case.number and wanted.level < case.segment_level:
                # Incomplete segments: the most members and the smallest domain are promised, no more.
                incomplete += 1
                assert mine.left == wanted.left or case.preferred > mine.level, case
            elif wanted.level < case.levels:
                assert mine == wanted, case
                compared += 1
    assert compared > 20
    assert incomplete > 1


@pytest.mark.parametrize("seed", range(3))
def test_names_and_order_change_nothing(seed: int) -> None:
    chance = random.Random(100 + seed)
    for _ in range(100):
        case = random_case(chance)
        order = chance.sample(range(len(case.paths)), len(case.paths))
        renamed = {value: f"{chance.randint(0, 99)}-{value}" for value in "abc"}
        other = replace(
            case,
            paths=tuple(tuple(renamed[value] for value in case.paths[at]) for at in order),
            rooms=tuple(case.rooms[at] for at in order),
            held=tuple(case.held[at] for at in order),
        )
        first, second = layouts(case), layouts(other)
        assert sorted((one.members, one.level, one.rank) for one in first) == sorted(
            (one.members, one.level, one.rank) for one in second
        ), case


@pytest.mark.parametrize("seed", range(3))
def test_a_node_more_never_makes_it_worse(seed: int) -> None:
    chance = random.Random(200 + seed)
    for _ in range(100):
        case = random_case(chance)
        node = tuple(chance.choice("abc") for _ in range(case.levels))
        more = replace(case, paths=(*case.paths, node), rooms=(*case.rooms, 2), held=(*case.held, 0))
        before, after = layouts(case), layouts(more)
        if before:
            assert (after[0].members, after[0].level) >= (before[0].members, before[0].level), case


def test_wide_costs_are_exact_too() -> None:
    """Five levels of many domains do not fit in 64 bits, and are added up as Python's integers."""
    paths = tuple(tuple(f"{value}" for value in (at // 256, at // 64, at // 16, at // 4, at // 2)) for at in range(512))
    case = Case(paths, 5, tuple(1 + at % 7 for at in range(512)), (0,) * 512, 1500, 1500, preferred=1)
    (layout,) = layouts(case)[:1]
    assert layout.members == sum(counts_of(case, layout)) == 1500
    assert layout.level == -1
    smaller = replace(case, paths=tuple(path[:2] for path in paths), levels=2)
    (other,) = layouts(smaller)[:1]
    assert layout.rank[:2] == other.rank[:2]


def test_segments_go_whole_and_the_short_one_comes_last() -> None:
    paths = tuple((rack,) for rack in ("r1", "r1", "r1", "r2", "r2", "r3", "r3", "r3"))
    case = Case(paths, 1, (1,) * 8, (0,) * 8, number=7, least=7, size=3, segment_level=0)
    (layout,) = layouts(case)
    assert sorted(lot.pieces for lot in layout.lots) == [(1,), (3,), (3,)]
    assert layout.lots[-1].tail
