"""Arguments of the commands that tell what is and why: `explain`, `defrag`, `top`, `snapshot` and `replay`.

In comes the parser of commands, and these are in it. What a command needs is loaded when it runs.
"""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING, Any

from adjoin.cli.exits import BAD_INPUT

if TYPE_CHECKING:
    from adjoin.cli.source import Where

_EXITS = "Exit status: 0 {ok}, {more}1 the cluster cannot be read, 2 bad input."


def add_inquiries(commands: Any) -> None:
    """Adds the commands."""
    explain = commands.add_parser(
        "explain",
        help="why a claim waits, what would make it fit, who is in the way",
        description="Says why a DeviceClaim waits, what would make it fit, who holds what it needs, and when its turn "
        "comes; of a placed one where it is and how near its devices are. Reads the cluster of the kubeconfig, or "
        "files. " + _EXITS.format(ok="the claim is placed", more="3 it waits, "),
    )
    explain.add_argument("claim", metavar="CLAIM", help="name of the DeviceClaim, or NAMESPACE/NAME")
    explain.add_argument("-n", "--namespace", default="", help="namespace of the claim")
    _add_source(explain)
    _add_output(explain)
    explain.set_defaults(command=_explain)
    defrag = commands.add_parser(
        "defrag",
        help="which moves would make a waiting claim fit, or lead away from loaded nodes",
        description="Finds the fewest devices that would have to move to make a waiting DeviceClaim fit: of which "
        "replicas, from where to where; with --load, which replicas with parts of devices could leave loaded nodes. "
        "Only replicas of preemptible claims are moved, and nothing is done about it: it is advice. "
        "What may move is what the claims' statuses hold, of files too: not what `plan` would give to claims without "
        "status, which ask for devices beside all others. "
        + _EXITS.format(ok="there are such moves, or none are needed", more="3 there are none, "),
    )
    defrag.add_argument("pool", metavar="POOL", help="name of the DevicePool")
    defrag.add_argument(
        "claim", metavar="CLAIM", nargs="?", help="the claim that is to fit (default: the largest that waits)"
    )
    defrag.add_argument("-n", "--namespace", default="", help="namespace of the claim")
    defrag.add_argument(
        "--load", action="store_true", help="what could leave loaded nodes, instead of room for a claim that waits"
    )
    _add_source(defrag)
    _add_output(defrag)
    defrag.set_defaults(command=_defrag)
    top = commands.add_parser(
        "top",
        help="pools, nodes and devices, and who has them",
        description="Shows DevicePools, nodes and devices, and who has them: of a cluster again and again until it is "
        "interrupted, of files once. It shows what the claims' statuses hold, of files too, and plans nothing: what "
        "claims without status would get says `plan`. " + _EXITS.format(ok="shown", more=""),
    )
    top.add_argument("pools", metavar="POOL", nargs="*", help="names of DevicePools (default: all)")
    top.add_argument("--node", action="append", default=[], metavar="NODE", help="only this node; may be repeated")
    top.add_argument("--once", action="store_true", help="show it once, as without a terminal")
    top.add_argument(
        "--interval", type=float, default=5.0, metavar="SECONDS", help="seconds between two looks (default: 5)"
    )
    _add_source(top, timed=False)
    _add_output(top)
    top.set_defaults(command=_top)
    snapshot = commands.add_parser(
        "snapshot",
        help="write what the planner sees into a file",
        description="Writes everything that the planner's decision depends on, and the decision, as JSON. "
        + _EXITS.format(ok="done", more=""),
    )
    snapshot.add_argument(
        "-o", "--output", metavar="FILE", help="where to; compressed when it ends in .gz (default: standard output)"
    )
    _add_source(snapshot)
    snapshot.set_defaults(command=_snapshot)
    replay = commands.add_parser(
        "replay",
        help="plan again what a snapshot holds, and compare",
        description="Plans a file that `snapshot` or the operator wrote again, and compares the plan with the one in "
        "it. Exit status: 0 the same plan, 1 another one, 2 bad input.",
    )
    replay.add_argument("file", metavar="FILE", help="the file, or - for the standard input")
    _add_now(replay, "default: that of the file; at another time nothing is compared")
    _add_output(replay)
    replay.set_defaults(command=_replay)


def _add_source(parser: argparse.ArgumentParser, *, timed: bool = True) -> None:
    parser.add_argument(
        "-f",
        "--filename",
        action="append",
        default=[],
        metavar="FILE",
        help="file or directory with YAML or JSON, or -; may be given several times (default: the cluster)",
    )
    parser.add_argument("--kubeconfig", help="path of a kubeconfig (default: $KUBECONFIG, else ~/.kube/config)")
    parser.add_argument("--context", help="context in the kubeconfig (default: its current one)")
    parser.add_argument(
        "--operator-namespace",
        default="",
        metavar="NAMESPACE",
        help="where the operator runs and its ConfigMaps are (default: where its webhooks are served)",
    )
    if timed:
        _add_now(parser, "default: now, of files the newest time in them")


def _add_now(parser: argparse.ArgumentParser, default: str) -> None:
    parser.add_argument("--now", metavar="TIME", help=f"the time of the decision, 2026-12-01T08:00:00Z ({default})")


def _add_output(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "-o",
        "--output",
        choices=("table", "json", "yaml"),
        default="table",
        help="format of the output (default: table)",
    )


def _where(parsed: argparse.Namespace) -> Where:
    from adjoin.cli.source import Where

    return Where(tuple(parsed.filename), parsed.kubeconfig, parsed.context, parsed.operator_namespace)


def _explain(parsed: argparse.Namespace) -> int:
    from adjoin.cli.explain import explain_command

    return explain_command(_where(parsed), parsed.claim, parsed.namespace, parsed.now, parsed.output)


def _defrag(parsed: argparse.Namespace) -> int:
    from adjoin.cli.defrag import defrag_command

    if parsed.load and parsed.claim is not None:
        print("error: --load is about nodes: give it no CLAIM", file=sys.stderr)
        return BAD_INPUT
    return defrag_command(
        _where(parsed), parsed.pool, parsed.claim, parsed.namespace, parsed.now, parsed.output, load=parsed.load
    )


def _top(parsed: argparse.Namespace) -> int:
    from adjoin.cli.top import top_command

    where = _where(parsed)
    return top_command(where, parsed.pools, parsed.node, parsed.output, once=parsed.once, interval=parsed.interval)


def _snapshot(parsed: argparse.Namespace) -> int:
    from adjoin.cli.replay import snapshot_command

    return snapshot_command(_where(parsed), parsed.now, parsed.output)


def _replay(parsed: argparse.Namespace) -> int:
    from adjoin.cli.replay import replay_command

    return replay_command(parsed.file, parsed.now, parsed.output)
