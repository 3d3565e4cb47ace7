"""`topology NODE`: how a node is wired, and who has its devices.

In come the name of a node and either files, as for `plan`, or a kubeconfig; out go a tree, JSON or YAML on the standard
output, on request a picture in a file, warnings on the standard error, and an exit status. It shows what is, and plans
nothing.
"""

from __future__ import annotations

import io
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from adjoin.cli.exits import OK
from adjoin.cli.output import render
from adjoin.cli.progress import progress
from adjoin.cli.source import NoAnswer, Source, Where, complain, read_source, warn
from adjoin.cli.wiring import (
    Branch,
    Leaf,
    NodeWiring,
    PoolWiring,
    as_json,
    node_wiring,
    part_lines,
    sharing_line,
    title,
)
from adjoin.inventory import InventoryBuilder
from adjoin.lifecycle import followed_pods, relate
from adjoin.snapshot import SnapshotBuilder
from adjoin_allocator.model import natural_key
from adjoin_allocator.terms import DeviceState

if TYPE_CHECKING:
    from rich.text import Text
    from rich.tree import Tree

TREE: Final = "tree"

_STYLES: Final = {
    DeviceState.FREE: "green",
    DeviceState.ALLOCATED: "cyan",
    DeviceState.RESERVED: "yellow",
    DeviceState.RELEASING: "magenta",
    DeviceState.UNHEALTHY: "red",
    DeviceState.MISSING: "red",
}
_NAMED: Final = 10
"""How many nodes an error names."""
_ASCII: Final = str.maketrans({"├": "|", "└": "`", "│": "|", "─": "-"})


def topology_command(where: Where, node: str, output: str, svg: str | None) -> int:
    """The command. Returns its exit status."""
    try:
        with progress() as tell:
            source = read_source(where, tell)
            wiring = look_at(source, node)
        if svg is not None:
            _draw(wiring, svg)
    except NoAnswer as error:
        return complain(error)
    warn(source.given.warnings)
    warn(
        [f"DevicePool {each.pool}: {each.source} is not used: {each.problem}" for each in wiring.pools if each.problem]
    )
    sys.stdout.write(_tree(wiring) if output == TREE else render(as_json(wiring), output))
    return OK


def look_at(source: Source, node: str) -> NodeWiring:
    """The wiring of a node. Raises `NoAnswer` where there is no such node."""
    view = source.given.view
    inventory = InventoryBuilder(cluster=source.live).build(view)
    snapshot = SnapshotBuilder().build(view, inventory, followed_pods(view, relate(view), inventory))
    known = view.nodes.keys() | snapshot.inventory.keys()
    if node not in known:
        names = sorted(known, key=natural_key)
        more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
        there = f"nodes are {', '.join(names[:_NAMED])}{more}" if names else "there are no nodes at all"
        raise NoAnswer(f"there is no node {node}; {there}")
    return node_wiring(snapshot, node, source.given.newest or 0.0)


def _draw(wiring: NodeWiring, path: str) -> None:
    from adjoin.cli.picture import picture

    try:
        Path(path).write_text(picture(wiring), encoding="utf-8")
    except OSError as error:
        raise NoAnswer(f"{path}: {error.strerror}") from None


def _tree(wiring: NodeWiring) -> str:
    """For people."""
    from rich.console import Console
    from rich.tree import Tree as RichTree

    text = io.StringIO()
    tty = sys.stdout.isatty()
    # A line is a line, however long: what is cut off cannot be found again.
    console = Console(file=text, width=1_000_000, force_terminal=tty, highlight=False, legacy_windows=False)

    if not wiring.pools:
        console.print(_line((wiring.node, "bold"), (": no pool has a device on this node", "")))
    for number, pool in enumerate(wiring.pools):
        if number:
            console.print()
        head = (wiring.node, "bold"), (f"  pool {pool.pool}{_source(pool)}", "")
        tree = RichTree(_line(*head, *((f"  ({note})", "red") for note in wiring.notes)))
        _grow(tree, pool.host, _widths(pool))
        console.print(tree)
        for name, sentence in _link_lines(pool):
            console.print(_line((name, "bold"), (f": {sentence}", "")))
        console.print(_line((_counts(pool), "")))
    shown = "".join(f"{each.rstrip()}\n" for each in text.getvalue().splitlines())
    try:
        shown.encode(sys.stdout.encoding or "utf-8")
    except (UnicodeEncodeError, LookupError):
        return shown.translate(_ASCII)
    return shown


def _source(pool: PoolWiring) -> str:
    if not pool.source:
        return ", wiring from attributes"
    return f", {pool.source} is not used" if pool.problem else f", wiring from {pool.source} and attributes"


def _line(*parts: tuple[str, str]) -> Text:
    """One line of words and their styles."""
    from rich.text import Text

    return Text.assemble(*parts, no_wrap=True)


def _grow(tree: Tree, branch: Branch, widths: Sequence[int]) -> None:
    """Hangs what is in a part into the tree."""
    for leaf in branch.leaves:
        cells = [cell.ljust(width) for cell, width in zip(_cells(leaf), widths, strict=True) if width]
        limb = tree.add(_line(("  ".join(cells) + "  ", ""), (leaf.state.value, _STYLES[leaf.state]), (_why(leaf), "")))
        for holder, told, back in part_lines(leaf):
            state = DeviceState.RELEASING if back else DeviceState.ALLOCATED
            limb.add(_line((f"{told}  ", ""), (state.value, _STYLES[state]), (f" by {holder}", "")))
    for part in branch.parts:
        parts = part.chain()
        _grow(tree.add(_line((title(parts), "bold"))), parts[-1], widths)


def _cells(leaf: Leaf) -> tuple[str, ...]:
    return leaf.device.id.device, leaf.device.kind, leaf.address, leaf.group


def _widths(pool: PoolWiring) -> list[int]:
    rows = [_cells(leaf) for leaf in pool.host.all_leaves()]
    return [max(map(len, column)) for column in zip(*rows, strict=True)]


def _why(leaf: Leaf) -> str:
    by = f" by {leaf.holder}" if leaf.holder else ""
    if leaf.shared is not None:
        by = f", {sharing_line(leaf)}"
    return f"{by} ({leaf.detail})" if leaf.detail else by


def _link_lines(pool: PoolWiring) -> Iterator[tuple[str, str]]:
    """Each NVLink group with its devices and, where not all are joined alike, the partners of each."""
    for group in pool.groups:
        yield group.name, f"{' '.join(device.device for device in group.devices)}: {group.summary()}"
        if not group.alike:
            for device in group.devices:
                partners = [f"{other.device} x{links}" for other, links in group.partners(device)]
                yield f"  {device.device}", ", ".join(partners)


def _counts(pool: PoolWiring) -> str:
    """How many of the devices are in which state, by name."""
    names = dict.fromkeys(leaf.device.kind for leaf in pool.host.all_leaves())
    sentences = []
    for name in names:
        states = [leaf.state for leaf in pool.host.all_leaves() if leaf.device.kind == name]
        parts = [f"{states.count(state)} {state.value}" for state in reversed(DeviceState) if state in states]
        sentences.append(f"{name}: {', '.join(parts)} of {len(states)}")
    return "; ".join(sentences)
