"""`defrag`: which moves would make a waiting claim fit, or lead away from loaded nodes. Advice alone: nothing is moved.

In come objects of files or of a cluster, a pool and perhaps a claim; out go moves, each with where from and where to,
and where the claim would go then, or who has to stay on a loaded node.
"""

from __future__ import annotations

import gc
import io
import sys
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

from adjoin.cli.exits import OK, PENDING
from adjoin.cli.explain import find_claim
from adjoin.cli.explained import say, table, title
from adjoin.cli.held import device_words
from adjoin.cli.output import as_text, console_for, trimmed
from adjoin.cli.progress import progress
from adjoin.cli.question import Question, pose
from adjoin.cli.source import NoAnswer, Source, Where, complain, moment, read_source, warn
from adjoin.lifecycle import share_entry
from adjoin_allocator.amounts import counted
from adjoin_allocator.defrag import Advice, Outcome, defragment
from adjoin_allocator.model import ClaimUID, PlacedDevice
from adjoin_allocator.results import Placement
from adjoin_allocator.stage import Move
from adjoin_allocator.unload import Relief, relieve

if TYPE_CHECKING:
    from rich.console import Console

Json = dict[str, Any]

_NAMED = 5
"""How many loaded nodes are named."""
_WELL = (Outcome.NOTHING_WAITS, Outcome.FITS, Outcome.MOVES)


def defrag_command(
    where: Where, pool: str, name: str | None, namespace: str, now: str | None, output: str, *, load: bool = False
) -> int:
    """The command; `load`: away from loaded nodes. Returns its exit status: 3 when no moves were found."""
    gc.disable()
    try:
        with progress() as tell:
            at = moment(now)
            source = read_source(where, tell)
            question = pose(source.given, at, live=source.live)
            pools = question.asked.pools
            if pool not in pools:
                near = get_close_matches(pool, list(pools), 3) or sorted(pools)
                raise NoAnswer(f"there is no DevicePool {pool}" + (f"; there is {', '.join(near)}" if near else ""))
            if load:
                tell("looking for moves among claims", len(question.asked.claims))
                relief = relieve(question.asked, question.now, pool)
                return _relieved(source, question, pool, relief, output)
            uid = ClaimUID(find_claim(source, name, namespace)) if name is not None else None
            tell("looking for moves among claims", len(question.asked.claims))
            advice = defragment(question.asked, question.now, pool, uid)
    except NoAnswer as error:
        return complain(error)
    finally:
        gc.enable()
    warn(source.given.warnings)
    names = {each.uid: f"{each.namespace}/{each.name}" for each in question.asked.claims}
    shown = _shown(pool, advice, names)
    sys.stdout.write(_told(shown) if output == "table" else as_text(shown, output))
    return OK if advice.outcome in _WELL else PENDING


def _relieved(source: Source, question: Question, pool: str, relief: Relief, output: str) -> int:
    warn(source.given.warnings)
    names = {each.uid: f"{each.namespace}/{each.name}" for each in question.asked.claims}
    shown: Json = {
        "pool": pool,
        "loaded": list(relief.loaded),
        "moves": [_move(each, names) for each in relief.leaves],
        "stay": [
            {"claim": names[each.uid], "replica": each.index, "node": each.node, "why": each.why}
            for each in relief.stays
        ],
    }
    sys.stdout.write(_relief_told(shown) if output == "table" else as_text(shown, output))
    return PENDING if relief.stays and not relief.leaves else OK


def _relief_told(shown: Json) -> str:
    text = io.StringIO()
    console = console_for(text)
    loaded, count, stay = shown["loaded"], len(shown["moves"]), len(shown["stay"])
    if not loaded:
        say(console, f"no node of pool {shown['pool']} is loaded", "bold")
    else:
        on = f"{counted(len(loaded), 'loaded node')} ({', '.join(loaded[:_NAMED])}"
        on += f" and {len(loaded) - _NAMED} more)" if len(loaded) > _NAMED else ")"
        say(console, f"{count} of {counted(count + stay, 'replica')} with parts of devices could leave {on}", "bold")
    if shown["moves"]:
        title(console, "Moves, possible all together")
        _move_table(console, shown["moves"])
    if shown["stay"]:
        title(console, "Who stays")
        rows = [(each["claim"], str(each["replica"]), each["node"], each["why"]) for each in shown["stay"]]
        table(console, ("CLAIM", "REPLICA", "NODE", "WHY"), rows)
    return trimmed(text)


def _move_table(console: Console, moves: Sequence[Json]) -> None:
    rows = [(each["claim"], str(each["replica"]), _place(each["from"]), _place(each["to"])) for each in moves]
    table(console, ("CLAIM", "REPLICA", "FROM", "TO"), rows)


def _shown(pool: str, advice: Advice, names: Mapping[ClaimUID, str]) -> Json:
    return {
        "pool": pool,
        "claim": names[advice.uid] if advice.uid is not None else None,
        "outcome": advice.outcome.value,
        "why": advice.why or None,
        "devices": advice.devices,
        "fewest": advice.fewest,
        "moves": [_move(each, names) for each in advice.moves],
        "placements": [_placement(each) for each in advice.placements],
    }


def _move(move: Move, names: Mapping[ClaimUID, str]) -> Json:
    return {
        "claim": names[move.uid],
        "replica": move.index,
        "from": {"node": move.node, "devices": [_device(each) for each in move.devices]},
        "to": {"node": move.to_node, "devices": [_device(each) for each in move.to_devices]},
    }


def _placement(placement: Placement) -> Json:
    return {
        "replica": placement.index,
        "node": placement.node,
        "locality": dict(placement.locality),
        "devices": [_device(each) for each in placement.devices],
    }


def _device(device: PlacedDevice) -> Json:
    return {
        "request": device.request,
        "driver": device.id.driver,
        "pool": device.id.pool,
        "device": device.id.device,
        "id": device.hardware_id,
        "share": None if device.share is None else share_entry(device.share),
    }


def _told(shown: Json) -> str:
    text = io.StringIO()
    console = console_for(text)
    claim, count = shown["claim"], len(shown["moves"])
    moves, devices = counted(count, "move"), counted(shown["devices"], "device")
    headline = {
        Outcome.NOTHING_WAITS: f"no claim of pool {shown['pool']} waits for devices",
        Outcome.FITS: f"{claim} needs no moves: it has its devices, or gets them by the next decision",
        Outcome.MOVES: f"{claim} fits after {moves} of {devices} ({_proof(shown)})",
        Outcome.NO_MOVES: f"{claim}: no moves would make it fit: {shown['why']}",
        Outcome.NOT_FOUND: f"{claim}: {shown['why']}",
    }[Outcome(shown["outcome"])]
    say(console, headline, "bold")
    if shown["moves"]:
        title(console, "Moves, all at once")
        _move_table(console, shown["moves"])
    if shown["moves"] and shown["placements"]:
        title(console, f"Then {claim} gets")
        rows = [
            (str(each["replica"]), each["node"], " ".join(map(device_words, each["devices"])), _near(each))
            for each in shown["placements"]
        ]
        table(console, ("REPLICA", "NODE", "DEVICES", "LOCALITY"), rows)
    return trimmed(text)


def _proof(shown: Json) -> str:
    return "no fewer devices would do" if shown["fewest"] else "fewer may do: not everything was tried"


def _place(spot: Json) -> str:
    return f"{spot['node']}: {' '.join(map(device_words, spot['devices']))}"


def _near(placement: Json) -> str:
    return ", ".join(f"{pair} {level}" for pair, level in placement["locality"].items()) or "-"
