"""A plan as text: JSON and YAML for programs, tables for people.

In comes the object of `plan -o json`, out goes a text. JSON and YAML are the same bytes for the same object; tables are
as wide as the terminal, or 120 columns where there is none.
"""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from adjoin.api.share import ShareCondition
from adjoin.cli.held import by_request

if TYPE_CHECKING:
    from rich.console import Console

WIDTH = 120


def render(shown: Mapping[str, Any], output: str) -> str:
    """The text of a plan, ending with a newline."""
    return as_text(shown, output) if output != "table" else _tables(shown)


def as_text(shown: Mapping[str, Any], output: str) -> str:
    """An object as JSON or YAML, ending with a newline."""
    if output == "json":
        return json.dumps(shown, indent=2, ensure_ascii=False) + "\n"
    import yaml

    # Words from vocabularies become plain text on the way through JSON.
    plain = json.loads(json.dumps(shown))
    return str(yaml.safe_dump(plain, sort_keys=False, allow_unicode=True, width=WIDTH))


def _tables(shown: Mapping[str, Any]) -> str:
    from rich.table import Table

    text = io.StringIO()
    console = console_for(text)
    claims = Table(box=None, pad_edge=False, header_style="bold")
    for column in ("CLAIM", "PHASE", "REPLICA", "NODE", "DEVICES", "LOCALITY"):
        claims.add_column(column, overflow="fold")
    for claim in shown["claims"]:
        for row in _claim_rows(claim):
            claims.add_row(*row)
    if shown["claims"]:
        console.print(claims)
    waiting = [claim for claim in shown["claims"] if claim["reasons"] or claim["nearest"]]
    if waiting:
        console.print()
    for claim in waiting:
        for reason in claim["reasons"]:
            console.print(f"{_name(claim)}: {reason['code']}: {reason['message']}", markup=False, soft_wrap=True)
        if claim["nearest"]:
            console.print(f"{_name(claim)}: nearest: {claim['nearest']}", markup=False, soft_wrap=True)
    said = list(_share_lines(shown["shares"]))
    if said:
        console.print()
    for line in said:
        console.print(line, markup=False, soft_wrap=True)
    pools = Table(box=None, pad_edge=False, header_style="bold")
    pools.add_column("POOL")
    pools.add_column("DEVICE")
    counts = ("capacity", "free", "allocated", "reserved", "releasing", "unhealthy", "missing")
    for column in counts:
        pools.add_column(column.upper(), justify="right")
    for pool in shown["pools"]:
        for name, device in pool["devices"].items():
            pools.add_row(pool["name"], name, *(str(device[count]) for count in counts))
    if shown["pools"]:
        if shown["claims"] or said:
            console.print()
        console.print(pools)
    return trimmed(text)


def console_for(text: io.StringIO) -> Console:
    """A console that writes for the standard output into `text`."""
    from rich.console import Console

    tty = sys.stdout.isatty()
    return Console(file=text, width=None if tty else WIDTH, force_terminal=tty, highlight=False)


def trimmed(text: io.StringIO) -> str:
    """What was written. Cells are padded to the width of their column; nobody needs that at the end of a line."""
    return "".join(f"{line.rstrip()}\n" for line in text.getvalue().splitlines())


def _name(claim: Mapping[str, Any]) -> str:
    return f"{claim['namespace']}/{claim['name']}"


def _share_lines(shares: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """What keeps shares from giving all that they say."""
    for share in shares:
        if not share["accepted"]:
            yield f"DeviceShare {share['name']}: refused: {share['message']}"
        for condition in share["conditions"]:
            if condition["type"] != ShareCondition.READY and condition["status"] == "True":
                yield f"DeviceShare {share['name']}: {condition['type']}: {condition['message']}"


def _claim_rows(claim: Mapping[str, Any]) -> Iterator[tuple[str, ...]]:
    """A row for every replica; a claim without any has a row of its own."""
    name, phase = _name(claim), claim["phase"]
    if not claim["replicas"]:
        yield name, phase, "-", "-", "-", "-"
    for replica in claim["replicas"]:
        yield (
            name,
            phase,
            str(replica["index"]),
            replica["node"],
            by_request(replica["devices"]),
            ", ".join(f"{pair} {level}" for pair, level in replica["locality"].items()) or "-",
        )
        name, phase = "", ""
