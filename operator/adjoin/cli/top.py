"""`top`: pools, nodes and devices, and who has them, again and again on a terminal.

In come names and either files, as for `plan`, or a kubeconfig; out go tables that stay on the screen until they are
interrupted, or the same once where nobody watches (`--once`, another output, a pipe, files), warnings on the standard
error, and an exit status. It shows what is, and plans nothing.
"""

from __future__ import annotations

import io
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from adjoin.cli.exits import OK
from adjoin.cli.explained import say, table, title
from adjoin.cli.output import as_text, console_for, trimmed
from adjoin.cli.progress import progress
from adjoin.cli.source import NoAnswer, Source, Where, complain, read_source, warn
from adjoin.cli.usage import usage
from adjoin_allocator.amounts import counted

if TYPE_CHECKING:
    from rich.console import Console

LEAST_SECONDS: Final = 1.0
"""A cluster is read whole every time: not more often than this."""
_COUNTS: Final = ("capacity", "free", "allocated", "reserved", "releasing", "unhealthy", "missing")


def top_command(
    where: Where, pools: Sequence[str], nodes: Sequence[str], output: str, *, once: bool, interval: float
) -> int:
    """The command. Returns its exit status."""

    def look() -> tuple[Source, dict[str, Any]]:
        source = read_source(where, lambda words, done=None, total=None: None)
        return source, _chosen(source, pools, nodes)

    try:
        if interval < LEAST_SECONDS:
            raise NoAnswer(f"--interval {interval:g}: must be {LEAST_SECONDS:g} or more seconds")
        with progress() as tell:
            source = read_source(where, tell)
            shown = _chosen(source, pools, nodes)
        warn(source.given.warnings)
        if output != "table" or once or where.files or not sys.stdout.isatty():
            sys.stdout.write(as_text(shown, output) if output != "table" else tables(shown))
            return OK
        from rich.console import Console

        return watch(shown, look, interval, Console(highlight=False))
    except NoAnswer as error:
        return complain(error)


def _chosen(source: Source, pools: Sequence[str], nodes: Sequence[str]) -> dict[str, Any]:
    """What was asked for. Raises `NoAnswer` where there is no such pool or node."""
    shown = usage(source.given, live=source.live, pools=pools, nodes=nodes)
    known = {each.meta.name for each in source.given.view.pools.values()}
    for name in pools:
        if name not in known:
            raise NoAnswer(f"there is no DevicePool {name}; there are {', '.join(sorted(known)) or 'none'}")
    there = {each["node"] for each in shown["nodes"]}
    for name in nodes:
        if name not in there:
            raise NoAnswer(f"no pool {'of these ' if pools else ''}has a device on node {name}")
    return shown


def watch(
    shown: dict[str, Any],
    look: Callable[[], tuple[Source, dict[str, Any]]],
    interval: float,
    console: Console,
    sleep: Callable[[float], None] = time.sleep,
) -> int:
    """Shows it anew every `interval` seconds until it is interrupted. A cluster that cannot be read for a while is said
    below what was known last."""
    from rich.live import Live
    from rich.text import Text

    trouble = ""
    try:
        with Live(console=console, screen=True, auto_refresh=False) as live:
            while True:
                text = tables(shown)
                rows = max(live.console.size.height - 2, 1)
                lines = text.splitlines()
                more = (
                    f"… {counted(len(lines) - rows, 'more line')}: name a pool, or --node" if len(lines) > rows else ""
                )
                note = trouble or more
                live.update(Text.from_ansi("\n".join([*lines[:rows], note])), refresh=True)
                sleep(interval)
                try:
                    _, shown = look()
                    trouble = ""
                except NoAnswer as error:
                    trouble = f"error: {error}"
    except KeyboardInterrupt:
        return OK


def tables(shown: Mapping[str, Any]) -> str:
    """For people."""
    text = io.StringIO()
    console = console_for(text)
    say(console, f"{shown['now']}", "dim")
    _pools(console, shown)
    title(console, "Nodes")
    table(console, ("NODE", "DEVICES", "NOTES"), [_node(each) for each in shown["nodes"]])
    title(console, "Devices")
    columns = ("NODE", "DEVICE", "NAME", "STATE", "HOLDER", "POD", "SINCE")
    table(console, columns, [row for each in shown["devices"] for row in _device(each)])
    return trimmed(text)


def _pools(console: Console, shown: Mapping[str, Any]) -> None:
    rows = [
        (pool["name"], str(pool["nodes"]), name, *(str(counts[each]) for each in _COUNTS))
        for pool in shown["pools"]
        for name, counts in pool["devices"].items()
    ]
    columns = ("POOL", "NODES", "DEVICE", *(each.upper() for each in _COUNTS))
    table(console, columns, rows, right=("NODES", *columns[3:]))
    for pool in shown["pools"]:
        for note in pool["notes"]:
            say(console, f"{pool['name']}: {note}")


def _node(node: Mapping[str, Any]) -> tuple[str, ...]:
    devices = [
        f"{name} {', '.join(f'{count} {state}' for state, count in tally.items())}"
        for name, tally in node["devices"].items()
    ]
    return node["node"], "; ".join(devices), ", ".join(node["notes"]) or "-"


def _device(device: Mapping[str, Any]) -> list[tuple[str, ...]]:
    """A row for every holder; a device without any has a row of its own."""
    state = device["state"] + (f" ({device['detail']})" if device["detail"] else "")
    first = (device["node"], device["device"], device["name"], state)
    rows: list[tuple[str, ...]] = []
    for holder in device["holders"]:
        index = "" if holder["replica"] is None else f" replica {holder['replica']}"
        cells = (f"{holder['claim']}{index}", holder["pod"] or "-", holder["since"] or "-")
        rows.append((*(first if not rows else ("", "", "", "")), *cells))
    return rows or [(*first, "-", "-", "-")]
