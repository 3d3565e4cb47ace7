"""Arguments in, exit status out: which command was asked for, and what it was given.

Every command is a function of its parsed arguments and the standard streams. What only one command needs is imported
when it runs.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import PurePath

from adjoin.cli.exits import BAD_INPUT, BROKEN_PIPE, OK
from adjoin.cli.inquiries import add_inquiries

PLUGIN = "kubectl-adjoin"


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs a command and returns its exit status. `arguments` are those of the process unless given."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    if given[:1] == ["run"]:
        return _run(given[1:])
    try:
        parsed = _parser().parse_args(given)
    except SystemExit as exit_:
        return BAD_INPUT if exit_.code else OK
    try:
        status: int = parsed.command(parsed)
        sys.stdout.flush()
        return status
    except BrokenPipeError:
        # Whoever reads our output has seen enough. Python would complain once more when it closes the stream.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return BROKEN_PIPE


def _program() -> str:
    return "kubectl adjoin" if PurePath(sys.argv[0]).name == PLUGIN else "adjoin"


def _run(arguments: Sequence[str]) -> int:
    """The operator. Its options are known only to the module that runs it, which loads kopf and the client."""
    from adjoin.app import SettingsError, add_arguments, read_settings, run

    parser = argparse.ArgumentParser(
        prog=f"{_program()} run",
        description="Runs the operator until it is told to stop. Every option may also be given in the environment, "
        "as ADJOIN_ and its name in capitals.",
    )
    add_arguments(parser)
    try:
        settings = read_settings(parser.parse_args(arguments), os.environ)
    except SystemExit as exit_:
        return BAD_INPUT if exit_.code else OK
    except SettingsError as error:
        print(f"error: {error}", file=sys.stderr)
        return BAD_INPUT
    return run(settings)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog=_program(),
        description="Device neighbourhoods for Kubernetes pods: GPUs, RDMA NICs and others that sit close.",
    )
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    commands.add_parser("run", help="run the operator", add_help=False)
    plan = commands.add_parser(
        "plan",
        help="what Adjoin would do with objects from files, without a cluster",
        description="Reads Nodes, ResourceSlices, DevicePools, DeviceClaims, ConfigMaps, pods and workloads from files "
        "and prints what Adjoin would do with them. Exit status: 0 everything is placed, 3 something waits, 2 bad "
        "input.",
    )
    plan.add_argument(
        "-f",
        "--filename",
        action="append",
        required=True,
        metavar="FILE",
        help="file or directory with YAML or JSON, or - for the standard input; may be given several times",
    )
    plan.add_argument(
        "-o",
        "--output",
        choices=("table", "json", "yaml"),
        default="table",
        help="format of the output (default: table)",
    )
    plan.add_argument(
        "--now",
        metavar="TIME",
        help="the time of the decision, such as 2026-12-01T08:00:00Z (default: the newest time in the input)",
    )
    plan.add_argument(
        "--one-by-one",
        action="store_true",
        help="plan each claim as if it arrived alone, in the order of the input",
    )
    plan.add_argument(
        "-n",
        "--namespace",
        default="",
        help="the operator's namespace: whose ConfigMaps count where several have one name",
    )
    plan.set_defaults(command=_plan)
    add_inquiries(commands)
    _add_topology(commands)
    _add_release(commands)
    return parser


def _add_release(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    release = commands.add_parser(
        "release-quarantine",
        help="vouch for a device that is in quarantine",
        description="Asks Adjoin to give a device out again that it keeps in quarantine, by an annotation on the "
        "device's DevicePool. Exit status: 0 asked, 1 the cluster cannot be read or written, 2 no such device in "
        "quarantine.",
    )
    release.add_argument(
        "device",
        metavar="DEVICE",
        help="the device, as POOL/DEVICE (such as node-a/gpu-0), DRIVER/POOL/DEVICE, or by its uuid or PCI address",
    )
    release.add_argument("--reason", required=True, help="why it is sound; told in an Event on the pool")
    release.add_argument("--kubeconfig", help="path of a kubeconfig (default: $KUBECONFIG, else ~/.kube/config)")
    release.add_argument("--context", help="context in the kubeconfig (default: its current one)")
    release.set_defaults(command=_release)


def _release(parsed: argparse.Namespace) -> int:
    from adjoin.cli.release import release_command

    return release_command(parsed.device, parsed.reason, parsed.kubeconfig, parsed.context)


def _add_topology(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    topology = commands.add_parser(
        "topology",
        help="how a node is wired and who has its devices",
        description="Shows a node as a tree of NUMA nodes, root complexes, switches and devices, with its NVLink "
        "groups and who holds what: of a cluster, or of objects from files. Who holds what is read from the claims' "
        "statuses, of files too, and nothing is planned: what claims without status would get says `plan`. Exit "
        "status: 0, 1 the cluster cannot be read, 2 an unknown node or bad input.",
    )
    topology.add_argument("node", metavar="NODE", help="name of the node")
    topology.add_argument(
        "-f",
        "--filename",
        action="append",
        default=[],
        metavar="FILE",
        help="file or directory with YAML or JSON, or - for the standard input, instead of a cluster; may be given "
        "several times",
    )
    topology.add_argument(
        "-o", "--output", choices=("tree", "json", "yaml"), default="tree", help="format of the output (default: tree)"
    )
    topology.add_argument("--svg", metavar="FILE", help="draw the node into this file too")
    topology.add_argument(
        "-n",
        "--namespace",
        "--operator-namespace",
        default="",
        help="the operator's namespace: whose ConfigMaps count (default: found in the cluster)",
    )
    topology.add_argument("--kubeconfig", help="path of a kubeconfig (default: $KUBECONFIG, else ~/.kube/config)")
    topology.add_argument("--context", help="context in the kubeconfig (default: its current one)")
    topology.set_defaults(command=_topology)


def _topology(parsed: argparse.Namespace) -> int:
    from adjoin.cli.source import Where
    from adjoin.cli.topology import topology_command

    where = Where(tuple(parsed.filename), parsed.kubeconfig, parsed.context, parsed.namespace)
    return topology_command(where, parsed.node, parsed.output, parsed.svg)


def _plan(parsed: argparse.Namespace) -> int:
    from adjoin.cli.plan import plan_command

    return plan_command(
        sources=parsed.filename,
        output=parsed.output,
        now=parsed.now,
        one_by_one=parsed.one_by_one,
        namespace=parsed.namespace,
    )
