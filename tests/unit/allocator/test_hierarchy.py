"""Device trees: what is a tree is found as one, and what is not is said to be explicit."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations

from hypothesis import given, settings
from hypothesis import strategies as st

from adjoin_allocator.hierarchy import NO_PAIRS, Relation, Vertex, grow
from adjoin_allocator.topology import bits


def vertices(vertex: Vertex) -> Iterator[Vertex]:
    yield vertex
    for part in vertex.parts:
        yield from vertices(part)


def distance(one: int, other: int) -> int:
    """Leaves of a binary tree: the level at which two of them meet."""
    return (one ^ other).bit_length()


def test_switches_roots_and_sockets_come_back_as_a_tree() -> None:
    tree = grow(0b11111111, [Relation.of(255, 255, distance)], [0])
    assert [part.mask for part in tree.parts] == [0b00001111, 0b11110000]
    assert [part.mask for part in tree.parts[0].parts] == [0b0011, 0b1100]
    assert not any(vertex.explicit for vertex in vertices(tree))


def test_devices_that_are_all_equally_far_are_parts_of_one_vertex() -> None:
    tree = grow(0b1111, [Relation.of(15, 15, lambda one, other: 3)], [0])
    assert [part.mask for part in tree.parts] == [1, 2, 4, 8]
    assert tree.codes == (3,)


def test_a_ring_is_explicit_and_the_other_relation_still_a_tree() -> None:
    ring = Relation.of(15, 15, lambda one, other: 0 if abs(one - other) in (1, 3) else 1)
    halves = Relation.of(15, 15, lambda one, other: int(one // 2 != other // 2))
    tree = grow(15, [ring, halves], [0, 1])
    assert tree.explicit == (0,)
    assert [part.mask for part in tree.parts] == [0b0011, 0b1100]
    assert all(vertex.codes[0] == NO_PAIRS for vertex in vertices(tree))


def test_a_relation_between_two_sides_says_nothing_of_one_side_alone() -> None:
    # Devices 0 and 1 are GPUs, 2 and 3 their NICs.
    tree = grow(0b1111, [Relation.of(0b0011, 0b1100, lambda one, other: int(other - one != 2))], [0])
    assert [part.mask for part in tree.parts] == [0b0101, 0b1010]


@settings(max_examples=300, deadline=None)
@given(st.integers(1, 7), st.integers(1, 3), st.randoms(use_true_random=False))
def test_between_parts_the_code_is_the_vertex_code_unless_explicit(size: int, number: int, random: object) -> None:
    everybody = (1 << size) - 1
    cells = [
        {pair: random.randint(0, 3) for pair in combinations(range(size), 2)}  # type: ignore[attr-defined]
        for _ in range(number)
    ]
    relations = [
        Relation.of(everybody, everybody, lambda a, b, table=table: table[min(a, b), max(a, b)]) for table in cells
    ]
    tree = grow(everybody, relations, range(number))

    def walk(vertex: Vertex, explicit: frozenset[int]) -> None:
        explicit |= set(vertex.explicit)
        assert sum(part.mask for part in vertex.parts) in (vertex.mask, 0)
        for one, other in combinations(vertex.parts, 2):
            for a in bits(one.mask):
                for b in bits(other.mask):
                    for index in set(range(number)) - explicit:
                        assert cells[index][min(a, b), max(a, b)] == vertex.codes[index]
        for part in vertex.parts:
            walk(part, explicit)

    walk(tree, frozenset())
