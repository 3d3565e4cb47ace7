"""A node's wiring as SVG: boxes in boxes, a tile for each device, NVLink groups as colours with a list beside.

In comes a `NodeWiring`, out goes the text of an SVG document, made of nothing but its own arithmetic: no font is
measured, nothing is fetched, and equal wiring gives equal bytes. Every name is escaped, and cut to its place with the
whole of it as a tooltip.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from adjoin.cli.wiring import Branch, Leaf, LinkGroup, NodeWiring, PoolWiring, part_lines, sharing_line, title
from adjoin_allocator.model import DeviceID
from adjoin_allocator.sharers import SharedDevice
from adjoin_allocator.terms import DeviceState

TILE_WIDTH, TILE_HEIGHT = 168, 46
GAP = 8
HEAD = 22
"""Height of the line that says what a box is."""
ASPECT = 1.6
"""How much wider than high a box of many should be."""
SIDE_WIDTH = 260
"""Width of the list of NVLink groups."""
LINE = 16
_MARKS: Final = 8
"""Most marks of parts on a tile."""

_CHARACTER: Final = 8.0
"""Width of a bold character of 12 px in the wider of the common sans-serif faces."""
_SMALL: Final = 6.2
"""The same at 10 px, not bold."""

_FILLS: Final[Mapping[DeviceState, str]] = {
    DeviceState.FREE: "#e3f4e4",
    DeviceState.ALLOCATED: "#cfe0f7",
    DeviceState.RESERVED: "#fdf1c7",
    DeviceState.RELEASING: "#e9dcf6",
    DeviceState.UNHEALTHY: "#fbd9d3",
    DeviceState.MISSING: "#e4e4e4",
}
_GROUPS: Final = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000", "#999933")
"""Okabe and Ito's colours, told apart by colour-blind people too; the name of the group stands beside them."""

# What XML 1.0 has no place for.
_ILLEGAL = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


@dataclass(frozen=True, slots=True)
class _Box:
    """A laid-out part: its size and, relative to its corner, what is drawn in it."""

    width: int
    height: int
    inside: tuple[tuple[int, int, _Box | Leaf], ...]
    title: str
    depth: int


def picture(wiring: NodeWiring) -> str:
    """The SVG document."""
    lines: list[str] = []
    top, width = GAP, 0
    for pool in wiring.pools:
        box = _layout(pool.host, _head(wiring, pool), 0)
        colours = {group.name: _GROUPS[number % len(_GROUPS)] for number, group in enumerate(pool.groups)}
        links = _links_of(pool.groups)
        _draw_box(lines, GAP, top, box, colours, links)
        right = GAP + box.width
        height = box.height
        if pool.groups:
            height = max(height, _draw_groups(lines, right + 2 * GAP, top, pool.groups, colours))
            right += 2 * GAP + SIDE_WIDTH
        top += height + 2 * GAP
        width = max(width, right)
    states = [state for state in reversed(DeviceState) if any(leaf.state is state for leaf in _leaves(wiring))]
    if not wiring.pools:
        text = f"{wiring.node}: no pool has a device on this node"
        _text(lines, GAP, top + LINE, text, bold=True)
        width, top = int(GAP + len(text) * _CHARACTER), top + LINE + GAP
    for number, state in enumerate(states):
        x = GAP + number * 100
        lines.append(f'<rect x="{x}" y="{top}" width="12" height="12" fill="{_FILLS[state]}" stroke="#888888"/>')
        _text(lines, x + 17, top + 10, state.value, small=True)
    if states:
        top += 12 + GAP
    width = max(width, GAP + len(states) * 100) + GAP
    name = escape(f"Wiring of node {wiring.node}")
    head = [
        '<?xml version="1.0" encoding="UTF-8"?>',
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{top}" viewBox="0 0 {width} {top}"'
        f' role="img" aria-label="{name}" font-family="Helvetica, Arial, sans-serif" font-size="12">',
        f"<title>{name}</title>",
        f'<rect width="{width}" height="{top}" fill="#ffffff"/>',
    ]
    return "\n".join((*head, *lines, "</svg>")) + "\n"


def escape(text: str) -> str:
    """Text as it may stand in an element or an attribute."""
    legal = _ILLEGAL.sub("\ufffd", text)
    for character, name in (("&", "&amp;"), ("<", "&lt;"), (">", "&gt;"), ('"', "&quot;"), ("'", "&apos;")):
        legal = legal.replace(character, name)
    return " ".join(legal.split())


def _head(wiring: NodeWiring, pool: PoolWiring) -> str:
    return ", ".join((f"{wiring.node}, pool {pool.pool}", *wiring.notes))


def _leaves(wiring: NodeWiring) -> Iterable[Leaf]:
    return (leaf for pool in wiring.pools for leaf in pool.host.all_leaves())


def _links_of(groups: Sequence[LinkGroup]) -> Mapping[DeviceID, str]:
    """For each device that has NVLinks where they lead."""
    return {
        device: ", ".join(f"{other.device} x{links}" for other, links in group.partners(device))
        for group in groups
        for device in group.devices
    }


def _layout(branch: Branch, head: str, depth: int) -> _Box:
    """Places the devices of a part in rows, and below them its parts in rows, about as wide as `ASPECT` says."""
    blocks: list[list[tuple[int, int, _Box | Leaf]]] = []
    if branch.leaves:
        blocks.append([(TILE_WIDTH, TILE_HEIGHT, leaf) for leaf in branch.leaves])
    boxes = [_layout(parts[-1], title(parts), depth + 1) for parts in (part.chain() for part in branch.parts)]
    if boxes:
        blocks.append([(box.width, box.height, box) for box in boxes])
    area = sum((width + GAP) * (height + GAP) for block in blocks for width, height, _ in block)
    widest = max((width for block in blocks for width, _, _ in block), default=0)
    if len(branch.leaves) > 1:
        widest = max(widest, 2 * TILE_WIDTH + GAP)
    if depth == 0 and len(boxes) > 1:
        # NUMA nodes side by side, as the halves of a machine are drawn.
        widest = 2 * widest + GAP
    limit = max(widest, int((area * ASPECT) ** 0.5), int(len(head) * _CHARACTER))
    inside: list[tuple[int, int, _Box | Leaf]] = []
    top, right = HEAD, int(len(head) * _CHARACTER)
    for block in blocks:
        x, tallest = GAP, 0
        for width, height, what in block:
            if x > GAP and x - GAP + width > limit:
                x, top, tallest = GAP, top + tallest + GAP, 0
            inside.append((x, top, what))
            x += width + GAP
            tallest = max(tallest, height)
            right = max(right, x - GAP)
        top += tallest + GAP
    return _Box(right + GAP, top, tuple(inside), head, depth)


def _draw_box(
    lines: list[str], x: int, y: int, box: _Box, colours: Mapping[str, str], links: Mapping[DeviceID, str]
) -> None:
    fill = ("#f7f7f7", "#ffffff")[box.depth % 2]
    size = f'width="{box.width}" height="{box.height}"'
    lines.append(f'<rect x="{x}" y="{y}" {size} rx="4" fill="{fill}" stroke="#666666"/>')
    _text(lines, x + GAP, y + 15, box.title, bold=True)
    for left, top, what in box.inside:
        if isinstance(what, Leaf):
            _draw_tile(lines, x + left, y + top, what, colours, links)
        else:
            _draw_box(lines, x + left, y + top, what, colours, links)


def _draw_tile(
    lines: list[str], x: int, y: int, leaf: Leaf, colours: Mapping[str, str], links: Mapping[DeviceID, str]
) -> None:
    device = leaf.device
    dashes = ' stroke-dasharray="4 3"' if leaf.state is DeviceState.MISSING else ""
    lines.append('<g class="device">')
    partners = links.get(device.id, "")
    described = (
        f"{device.kind} {device.id}",
        device.hardware_id,
        leaf.address,
        f"{leaf.state.value}{f' by {leaf.holder}' if leaf.holder and leaf.shared is None else ''}",
        sharing_line(leaf),
        *(f"{part} by {holder}" for holder, part, _ in part_lines(leaf)),
        leaf.detail,
        f"{leaf.group} to {partners}" if partners else "",
    )
    lines.append(f"<title>{escape('; '.join(part for part in described if part))}</title>")
    lines.append(
        f'<rect x="{x}" y="{y}" width="{TILE_WIDTH}" height="{TILE_HEIGHT}" rx="3" fill="{_FILLS[leaf.state]}"'
        f' stroke="#444444"{dashes}/>'
    )
    room = TILE_WIDTH - 2 * GAP
    if leaf.group:
        lines.append(f'<rect x="{x}" y="{y}" width="5" height="{TILE_HEIGHT}" fill="{colours[leaf.group]}"/>')
    _text(lines, x + GAP + 2, y + 14, _cut(device.id.device, room / _CHARACTER), bold=True)
    _text(lines, x + GAP + 2, y + 27, _cut(" ".join((device.kind, leaf.address)), room / _SMALL), small=True)
    if leaf.shared is not None:
        _draw_parts(lines, x, y, leaf.shared)
    told = sharing_line(leaf) or leaf.holder or leaf.state.value
    _text(lines, x + GAP + 2, y + 40, _cut(told, room / _SMALL), small=True)
    lines.append("</g>")


def _draw_parts(lines: list[str], x: int, y: int, shared: SharedDevice) -> None:
    """A mark for each part at the upper right: as many as there is room for, the last one open where more are."""
    marks = [each.back for each in shared.sharers for _ in range(each.times)]
    for number, back in enumerate(marks[:_MARKS]):
        left = x + TILE_WIDTH - GAP - (number + 1) * 9
        fill = _FILLS[DeviceState.RELEASING] if back else "#3a6ea5"
        fill = "none" if number == _MARKS - 1 < len(marks) - 1 else fill
        lines.append(f'<rect x="{left}" y="{y + 5}" width="7" height="7" fill="{fill}" stroke="#3a6ea5"/>')


def _draw_groups(lines: list[str], x: int, y: int, groups: Sequence[LinkGroup], colours: Mapping[str, str]) -> int:
    """The list of NVLink groups; returns its height."""
    top = y
    for group in groups:
        lines.append(f'<rect x="{x}" y="{top}" width="12" height="12" fill="{colours[group.name]}"/>')
        _text(lines, x + 17, top + 10, group.name, bold=True)
        top += LINE
        names = _wrapped([device.device for device in group.devices], int(SIDE_WIDTH / _SMALL))
        for sentence in (*_wrapped(group.summary().split(" "), int(SIDE_WIDTH / _SMALL)), *names):
            _text(lines, x, top + 10, sentence, small=True)
            top += LINE - 2
        top += GAP
    return top - y


def _wrapped(words: Iterable[str], room: int) -> list[str]:
    """Words in lines of at most `room` characters; a longer word has a line of its own and is cut."""
    found: list[str] = []
    for word in words:
        if found and len(found[-1]) + 1 + len(word) <= room:
            found[-1] = f"{found[-1]} {word}"
        else:
            found.append(_cut(word, room))
    return found


def _cut(text: str, room: float) -> str:
    return text if len(text) <= room else f"{text[: int(room) - 1]}…"


def _text(lines: list[str], x: int, y: int, text: str, *, bold: bool = False, small: bool = False) -> None:
    weight = ' font-weight="bold"' if bold else ""
    size = ' font-size="10"' if small else ""
    lines.append(f'<text x="{x}" y="{y}"{weight}{size} fill="#111111">{escape(text)}</text>')
