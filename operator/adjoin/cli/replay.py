"""`snapshot` and `replay`: what the allocator is asked, in a file, and the same question put again.

In come objects or a file, out goes a file, or whether the allocator still gives the answer that stands in it. Nothing
of a cluster is needed to replay, and nothing is changed.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from adjoin.cli.documents import STDIN
from adjoin.cli.exits import FAILED, OK
from adjoin.cli.output import as_text
from adjoin.cli.progress import Tell, progress
from adjoin.cli.question import pose
from adjoin.cli.source import NoAnswer, Where, complain, moment, read_source, warn
from adjoin.lifecycle import rfc3339
from adjoin.records import UnreadableRecord, dumped, make_record, parse_record, read_record, write_record
from adjoin_allocator import plan
from adjoin_allocator.amounts import counted
from adjoin_allocator.wire_format import Record, encode_plan, encode_record

SHOWN = 20
"""How many differences are told."""


def snapshot_command(where: Where, now: str | None, file: str | None) -> int:
    """`snapshot`: dumps what the planner sees, with the plan that it makes of that. Returns the exit status."""
    try:
        with progress() as tell:
            record, notes = _taken(where, now, tell)
    except NoAnswer as error:
        return complain(error)
    warn(notes)
    if file is None or file == STDIN:
        sys.stdout.write(dumped(encode_record(record)) + "\n")
        return OK
    try:
        write_record(Path(file), record)
    except OSError as error:
        return complain(NoAnswer(f"{file}: {error.strerror or error}"))
    asked = record.snapshot
    print(
        f"{file}: {counted(len(asked.claims), 'claim')}, {counted(len(asked.nodes), 'node')}, "
        f"{counted(len(asked.pools), 'pool')} at {rfc3339(record.now)}",
        file=sys.stderr,
    )
    return OK


def _taken(where: Where, now: str | None, tell: Tell) -> tuple[Record, tuple[str, ...]]:
    at = moment(now)
    source = read_source(where, tell)
    question = pose(source.given, at, live=source.live)
    tell("planning", len(question.asked.claims))
    return make_record(question.asked, plan(question.asked, question.now), question.now), source.given.warnings


def replay_command(file: str, now: str | None, output: str) -> int:
    """`replay`: plans a record again. Exit status 1 when the answer is another one than the record's."""
    gc.disable()
    try:
        at = moment(now)
        with progress() as tell:
            tell(f"reading {file}")
            record = parse_record("standard input", sys.stdin.read()) if file == STDIN else read_record(Path(file))
            tell("planning", len(record.snapshot.claims))
            made = plan(record.snapshot, record.now if at is None else at)
    except (NoAnswer, UnreadableRecord) as error:
        return complain(error)
    finally:
        gc.enable()
    answer = encode_plan(made)
    compared = record.plan is not None and at in (None, record.now)
    differences = list(_differences(record.plan, answer, "plan")) if compared else []
    shown = {
        "now": rfc3339(record.now if at is None else at),
        "claims": len(record.snapshot.claims),
        "waiting": sum(bool(each.reasons) for each in made.claims.values()),
        "placed": sum(len(each.placements) for each in made.claims.values()),
        "same": not differences if compared else None,
        "struck": made.stats.struck,
        "differences": [{"where": place, "recorded": before, "now": after} for place, before, after in differences],
        "plan": answer,
    }
    sys.stdout.write(as_text(shown, output) if output != "table" else _told(shown))
    return FAILED if differences else OK


def _told(shown: Mapping[str, Any]) -> str:
    waiting = shown["waiting"]
    lines = [
        f"planned {counted(shown['claims'], 'claim')} at {shown['now']}: {counted(shown['placed'], 'replica')} placed, "
        f"{counted(waiting, 'claim')} {'waits' if waiting == 1 else 'wait'}"
    ]
    differences = shown["differences"]
    if shown["same"] is None:
        lines.append("the record holds no plan of that time to compare with")
    elif shown["same"]:
        lines.append("the plan is the one in the record, byte for byte")
    else:
        lines.append(f"the plan differs from the one in the record in {counted(len(differences), 'place')}:")
        for each in differences[:SHOWN]:
            lines.append(f"  {each['where']}: {_short(each['recorded'])} → {_short(each['now'])}")
        if len(differences) > SHOWN:
            lines.append(f"  … and {len(differences) - SHOWN} more")
    if shown["struck"]:
        lines.append("the optimiser was stopped by its wall limit: such a plan may differ from run to run")
    return "\n".join(lines) + "\n"


def _short(value: Any) -> str:
    text = "nothing" if value is None else dumped(value)
    return text if len(text) <= 80 else f"{text[:77]}…"


def _differences(before: Any, after: Any, place: str) -> Iterator[tuple[str, Any, Any]]:
    """Where two JSON values differ, the outermost place at which they are not comparable; order of keys included, since
    equal plans are equal bytes."""
    if isinstance(before, dict) and isinstance(after, dict):
        for key in dict.fromkeys((*before, *after)):
            yield from _differences(before.get(key), after.get(key), f"{place}.{key}")
        if list(before) != list(after) and set(before) == set(after):
            yield f"{place} (order)", list(before), list(after)
    elif isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        for position, (one, other) in enumerate(zip(before, after, strict=True)):
            yield from _differences(one, other, f"{place}[{position}]")
    elif dumped(before) != dumped(after):
        yield place, before, after
