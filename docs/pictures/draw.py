"""The pictures of docs/allocator.md, drawn from what `plan()` and `defragment()` really answer.

`python -m docs.pictures.draw` from the root of the repository writes them anew; a test compares them. A picture is rows
of nodes; a node is boxes for its devices, grouped by root complex; a colour is a claim.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from html import escape
from pathlib import Path

from tests.support import make

from adjoin_allocator import Claim, Device, Fabric, FabricLevel, Segment, Snapshot, plan
from adjoin_allocator.defrag import defragment
from adjoin_allocator.inquiry import settled

FOLDER = Path(__file__).parent
COLOURS = ("#4c78a8", "#f58518", "#54a24b", "#b279a2", "#e45756", "#72b7b2", "#eeca3b", "#9d755d")
FREE, INK, FRAME = "#f2f2f2", "#222222", "#999999"
BOX, GAP, GROUP, LEFT, LINE = 34, 4, 12, 96, 58


@dataclass(frozen=True)
class Row:
    """A node: its name, its devices in groups, and who has which."""

    name: str
    groups: Sequence[Sequence[str]]
    holders: Mapping[str, str]


def rows(snapshot: Snapshot) -> list[Row]:
    """The nodes of a snapshot with their holders, devices by root complex."""
    holders = {
        device.id: claim.name for claim in snapshot.claims for replica in claim.placed for device in replica.devices
    }
    made = []
    for node, devices in snapshot.inventory.items():
        groups: dict[object, list[Device]] = {}
        for device in devices:
            groups.setdefault(device.attributes.get(make.ROOT), []).append(device)
        names = [[device.id.device for device in group] for group in groups.values()]
        held = {device.id.device: holders[device.id] for device in devices if device.id in holders}
        made.append(Row(node, names, held))
    return made


def svg(parts: Sequence[tuple[str, Sequence[Row]]], claims: Sequence[str]) -> str:
    """Titled blocks of rows under one another, and a legend of the claims."""
    colours = {claim: COLOURS[place % len(COLOURS)] for place, claim in enumerate(claims)}
    shapes: list[str] = []
    y, width = 8, 0
    for title, block in parts:
        y += 18
        shapes.append(_text(8, y, title, weight="bold"))
        y += 8
        for row in block:
            x = LEFT
            shapes.append(_text(8, y + BOX * 0.65, row.name))
            for group in row.groups:
                start = x
                for name in group:
                    fill = colours.get(row.holders.get(name, ""), FREE)
                    shapes.append(f'<rect x="{x}" y="{y}" width="{BOX}" height="{BOX}" rx="4" fill="{fill}"/>')
                    shapes.append(_text(x + BOX / 2, y + BOX * 0.62, name, anchor="middle", size=9))
                    x += BOX + GAP
                frame = f'x="{start - 3}" y="{y - 3}" width="{x - start - GAP + 6}" height="{BOX + 6}"'
                shapes.append(f'<rect {frame} rx="6" fill="none" stroke="{FRAME}"/>')
                x += GROUP
            width = max(width, x)
            y += LINE - 6
    y += 14
    x = 8.0
    for claim, colour in colours.items():
        shapes.append(f'<rect x="{x}" y="{y - 10}" width="12" height="12" rx="2" fill="{colour}"/>')
        shapes.append(_text(x + 17, y, claim))
        x += 30 + 7.2 * len(claim)
    width = max(width, int(x))
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width + 8} {y + 12}" width="{width + 8}">'
    back = f'<rect width="{width + 8}" height="{y + 12}" fill="#ffffff"/>'
    return "\n".join((head, back, *shapes, "</svg>")) + "\n"


def _text(x: float, y: float, text: str, *, anchor: str = "start", size: int = 12, weight: str = "normal") -> str:
    style = f'font-family="sans-serif" font-size="{size}" font-weight="{weight}" fill="{INK}"'
    return f'<text x="{x:g}" y="{y:g}" text-anchor="{anchor}" {style}>{escape(text)}</text>'


def _placed(snapshot: Snapshot) -> Snapshot:
    return settled(snapshot, plan(snapshot, make.NOW))


def joint_choice() -> str:
    """Two GPUs and two NICs that sit together, though the first free ones do not."""
    devices = make.shared_roots(roots=4, gpus_each=2, nics_each=2)
    taken = [device for device in devices if device.id.device in ("gpu-0", "nic-1", "gpu-3", "nic-2", "nic-3")]
    claim = make.pairs("trainer", 2, make.required("PCIeRoot", "gpu", "nic"))
    before = make.snapshot(devices, [make.holding("others", taken), claim])
    parts = [("before", rows(before)), ("trainer: 2 gpu + 2 nic, PCIeRoot Required", rows(_placed(before)))]
    return svg(parts, ["others", "trainer"])


def left_behind() -> str:
    """Singles go where something is broken already, so that the whole node stays whole."""
    devices = [*make.shared_roots("node-a", nics_each=0), *make.shared_roots("node-b", nics_each=0)]
    held = [device for device in devices if device.id in {devices[0].id, devices[3].id, devices[4].id}]
    singles = [make.claim(f"single-{number}", created=make.NOW + number) for number in range(3)]
    whole = make.claim("whole", make.request("gpu", 8), created=make.NOW + 9)
    before = make.snapshot(devices, [make.holding("others", held), *singles, whole])
    parts = [("before", rows(before)), ("three singles, then a claim for 8", rows(_placed(before)))]
    return svg(parts, ["others", *(claim.name for claim in singles), "whole"])


def gang_on_a_fabric() -> str:
    """All four members in one block, pairs of them in one rack."""
    levels = (FabricLevel("block", "block"), FabricLevel("rack", "rack"))
    places = {"a1": "a/1", "a2": "a/1", "b1": "b/1", "b2": "b/1", "b3": "b/2", "b4": "b/2"}
    devices = [device for name in places for device in make.flat(f"node-{name}", 2)]
    nodes = [make.node(f"node-{name}", labels={"block": place[0], "rack": place}) for name, place in places.items()]
    held = [make.holding("others", [devices[5]])]
    gang = make.claim(
        "gang",
        make.request("gpu", 1),
        replicas=4,
        gang_min=4,
        fabric=Fabric(required="block", segment=Segment(2, "rack")),
    )
    pool = make.pool(fabric=levels)
    after = _placed(make.snapshot(devices, [*held, gang], pools=[pool], nodes=nodes))
    named = [replace(row, name=f"{row.name} {places[row.name.removeprefix('node-')]}") for row in rows(after)]
    return svg([("4 members of 1 gpu; block required, segments of 2 in a rack", named)], ["others", "gang"])


def moves() -> str:
    """The fewest devices that move so that a claim for a whole node fits."""
    devices = [*make.flat("node-a", 4), *make.flat("node-b", 4), *make.flat("node-c", 2)]
    holders = [
        make.holding("pair", devices[:2]),
        make.holding("three", devices[4:7]),
        make.holding("single", devices[8:9]),
    ]
    before = make.snapshot(devices, [*holders, make.claim("waits", make.request("gpu", 4))])
    advice = defragment(before, make.NOW, make.POOL)
    to = {(move.uid, move.index): move for move in advice.moves}
    claims: list[Claim] = []
    for claim in before.claims:
        placed = tuple(
            replace(each, node=to[claim.uid, each.index].to_node, devices=to[claim.uid, each.index].to_devices)
            if (claim.uid, each.index) in to
            else each
            for each in claim.placed
        )
        claims.append(replace(claim, placed=placed))
    after = _placed(replace(before, claims=tuple(claims)))
    title = f"after {len(advice.moves)} moves of {advice.devices} devices"
    return svg([("waits: 4 gpu on one node", rows(before)), (title, rows(after))], ["pair", "three", "single", "waits"])


PICTURES: Mapping[str, Callable[[], str]] = {
    "joint-choice.svg": joint_choice,
    "left-behind.svg": left_behind,
    "gang-on-a-fabric.svg": gang_on_a_fabric,
    "moves.svg": moves,
}


def write(names: Iterable[str] = PICTURES) -> None:
    """Writes pictures into this folder."""
    for name in names:
        (FOLDER / name).write_text(PICTURES[name]())


if __name__ == "__main__":
    write()
