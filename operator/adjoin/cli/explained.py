"""An explained claim as text for people: what is the matter first, then what can be done, then who and when.

In comes the object of `explain -o json`, out goes a text as wide as the terminal.
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from adjoin.cli.held import by_request, device_words
from adjoin.cli.output import console_for, trimmed
from adjoin_allocator.amounts import counted

if TYPE_CHECKING:
    from rich.console import Console

HOLDERS = 12
NEIGHBOURS = 4
NODES = 5
"""How many holders, claims on one device and nodes are shown; JSON has all that were looked at."""


def told(shown: Mapping[str, Any]) -> str:
    """The text, ending with a newline."""
    text = io.StringIO()
    console = console_for(text)
    _headline(console, shown)
    if shown["replicas"]:
        _placed(console, shown)
    if shown["neighbours"]:
        _neighbours(console, shown)
    if shown["waits"]:
        _waiting(console, shown)
    if shown["victims"] or shown["nominated"]:
        _held_for_it(console, shown)
    _turn(console, shown)
    if shown["waits"] and shown["nodes"]:
        _nodes(console, shown)
    if shown["holders"]:
        _holders(console, shown)
    return trimmed(text)


def say(console: Console, text: str, style: str | None = None) -> None:
    """A line as it is, however long."""
    console.print(text, style=style, markup=False, soft_wrap=True)


def title(console: Console, text: str) -> None:
    """An empty line and a heading."""
    console.print()
    say(console, text, "bold")


def table(console: Console, columns: Sequence[str], rows: Iterable[Sequence[str]], right: Sequence[str] = ()) -> None:
    """Rows under columns, those of `right` to the right."""
    from rich.table import Table
    from rich.text import Text

    made = Table(box=None, pad_edge=False, header_style="dim")
    for column in columns:
        made.add_column(column, justify="right" if column in right else "left", overflow="fold")
    for row in rows:
        made.add_row(*(Text(cell) for cell in row))
    console.print(made)


def _headline(console: Console, shown: Mapping[str, Any]) -> None:
    pool = f"pool {shown['pool']}" if shown["pool"] else "no pool"
    tenant = f", tenant {shown['tenant']}" if shown["tenant"] else ""
    gang = f", together from {shown['gang']} up" if shown["gang"] is not None else ""
    placed = f"{len(shown['replicas'])} of {counted(shown['wanted'], 'replica')} placed"
    say(
        console,
        f"{shown['namespace']}/{shown['name']}: {shown['phase']}, {placed}{gang} ({pool}{tenant})",
        "bold yellow" if shown["waits"] else "bold green",
    )


def _placed(console: Console, shown: Mapping[str, Any]) -> None:
    title(console, "Where it is")
    rows = []
    for replica in shown["replicas"]:
        rows.append(
            (
                str(replica["index"]),
                replica["node"],
                f"{replica['state']}{' (by the next decision)' if replica['index'] in shown['new'] else ''}",
                by_request(replica["devices"]),
                ", ".join(f"{pair} {level}" for pair, level in replica["locality"].items()) or "-",
            )
        )
    table(console, ("REPLICA", "NODE", "STATE", "DEVICES", "LOCALITY"), rows)
    if shown["fabricLevel"] is not None and len(shown["replicas"]) > 1:
        say(console, f"all replicas are in one {shown['fabricLevel']}")
    if shown["gap"] is not None:
        best = "nothing nearer was free" if shown["gap"] == 0 else f"{shown['gap']:.1%} farther than the best there was"
        say(console, f"gap {shown['gap']:g}: {best}")


def _neighbours(console: Console, shown: Mapping[str, Any]) -> None:
    title(console, "Who shares its devices")
    rows = [
        (
            str(each["replica"]),
            f"{each['node']}: {each['device']['device']}",
            ", ".join(f"{count} {profile}" for profile, count in each["profiles"].items()) or "nobody",
            f"{', '.join(each['claims'][:NEIGHBOURS])}{' …' if len(each['claims']) > NEIGHBOURS else ''}" or "-",
            each["left"] or "-",
        )
        for each in shown["neighbours"][:HOLDERS]
    ]
    table(console, ("REPLICA", "DEVICE", "NEIGHBOURS", "CLAIMS", "LEFT"), rows)


def _waiting(console: Console, shown: Mapping[str, Any]) -> None:
    title(console, "Why it waits")
    for reason in shown["reasons"]:
        count = f" ({counted(reason['nodes'], 'node')})" if reason["nodes"] else ""
        say(console, f"{reason['code']}{count}: {reason['message']}")
    title(console, "What would make it fit")
    say(console, shown["nearest"] or "no single change of the claim")
    enough = [each for each in shown["holders"] if each["enough"]]
    for each in enough[:3]:
        if each["releasing"]:
            what = "when it has given its devices back"
        elif each["evictable"]:
            what = "if it were evicted, which this claim may ask for"
        else:
            what = f"if it gave its devices back ({each['why']})"
        say(console, f"{each['holder']}: {what}")


def _held_for_it(console: Console, shown: Mapping[str, Any]) -> None:
    title(console, "Evictions")
    for each in shown["victims"]:
        replicas = ", ".join(map(str, each["replicas"]))
        say(console, f"{each['claim']} (replica {replicas}) leaves for {each['by']}")
    for each in shown["nominated"]:
        names = " ".join(map(device_words, each["devices"]))
        say(console, f"held for replica {each['index']}: {names} on {each['node']}")


def _turn(console: Console, shown: Mapping[str, Any]) -> None:
    order = shown["order"]
    title(console, "When its turn comes" if order["position"] is not None else "Priority and tenant")
    parts = f"priority {order['priority']} + aging {order['aging']} + urgency {order['urgency']} = {order['effective']}"
    share = (
        "of a tenant of weight 0" if order["dominantShare"] is None else f"dominant share {order['dominantShare']:.1%}"
    )
    if order["position"] is None:
        say(console, f"{parts}, {share}")
    else:
        say(console, f"{order['position']} of {order['waiting']} that wait: {parts}, {share}")
    if order["ahead"]:
        more = (order["position"] or 1) - 1 - len(order["ahead"])
        say(console, f"before it: {', '.join(order['ahead'])}{f' and {more} more' if more > 0 else ''}")
    rows = [
        (
            line["device"],
            f"{line['used']:g}",
            f"{line['asked']:g}",
            "unlimited" if line["quota"] is None else str(line["quota"]),
            str(line["borrowing"]),
            str(line["capacity"]),
        )
        for line in shown["quota"]
    ]
    if rows:
        columns = ("DEVICE", "USED", "ASKED", "QUOTA", "BORROWING", "CAPACITY")
        table(console, columns, rows, right=columns[1:])


def _nodes(console: Console, shown: Mapping[str, Any]) -> None:
    enough = f"{shown['candidates']} {'has' if shown['candidates'] == 1 else 'have'} enough devices"
    title(console, f"Nodes that come nearest ({enough}, whoever holds them)")
    rows = [
        (
            node["node"],
            ", ".join(f"{name} {each['free']} of {each['eligible']} free" for name, each in node["requests"].items()),
            node["closed"] or "open",
        )
        for node in shown["nodes"][:NODES]
    ]
    table(console, ("NODE", "DEVICES", "STATE"), rows)


def _holders(console: Console, shown: Mapping[str, Any]) -> None:
    title(console, "Who is in the way")
    rows = [
        (
            each["holder"],
            each["tenant"] or "-",
            "-" if each["priority"] is None else str(each["priority"]),
            each["since"] or "-",
            f"{len(each['devices'])} on {', '.join(each['nodes'][:2])}{' …' if len(each['nodes']) > 2 else ''}",
            "yes" if each["releasing"] else "no",
            f"{'yes' if each['evictable'] else 'no'}: {each['why']}",
            {True: "yes", False: "no", None: "?"}[each["enough"]],
        )
        for each in shown["holders"][:HOLDERS]
    ]
    columns = ("HOLDER", "TENANT", "PRIORITY", "SINCE", "DEVICES", "RELEASING", "EVICTABLE", "ENOUGH")
    table(console, columns, rows, right=("PRIORITY",))
    if len(shown["holders"]) > HOLDERS:
        say(console, f"and {len(shown['holders']) - HOLDERS} more")
