"""`python -m tests.controlplane build|up|env`: the test control plane for a person at a terminal.

build  builds the programs that are missing (those of the ordinary tests, or the groups named; `node` means all that a
       real node needs)
up     starts a control plane, prints how to reach it, and stays until Ctrl-C
env    prints shell code that puts kubectl, helm and the other programs into PATH:
       eval "$(python -m tests.controlplane env)"
"""

from __future__ import annotations

import argparse
import asyncio
import os
import shlex
import signal
import sys
from types import FrameType

from tests.controlplane.build import ensure
from tests.controlplane.errors import BuildError
from tests.controlplane.nodes import create_objects, simulated_node, wait_nodes_ready
from tests.controlplane.options import Options
from tests.controlplane.recipes import NODE, ORDINARY, Group
from tests.controlplane.server import ControlPlane, StartError


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.controlplane", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(dest="command", required=True)
    build = commands.add_parser("build", help="build the programs that are missing")
    named = f"{{{','.join((*Group, 'node'))}}}"
    build.add_argument("groups", nargs="*", type=groups, metavar=named, help="default: those of the ordinary tests")
    up = commands.add_parser("up", help="start a control plane and stay until Ctrl-C")
    up.add_argument("--nodes", type=int, default=0, help="create so many empty simulated nodes")
    up.add_argument("--audit", action="store_true", help="write an audit log")
    commands.add_parser("env", help="print shell code that puts the programs into PATH")
    chosen = parser.parse_args(arguments)
    try:
        if chosen.command == "build":
            wanted = [group for named in chosen.groups for group in named]
            for name, path in ensure(*(wanted or ORDINARY)).items():
                print(f"{name}\t{path}")
        elif chosen.command == "env":
            folders = dict.fromkeys(str(path.parent) for path in ensure(*ORDINARY).values())
            print(f'export PATH={shlex.quote(os.pathsep.join(folders))}:"$PATH"')
        else:
            stay_up(Options(audit=chosen.audit), chosen.nodes)
    except (BuildError, StartError) as error:
        print(error, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


def groups(name: str) -> tuple[Group, ...]:
    """The groups that a word of the command line means."""
    return NODE if name == "node" else (Group(name),)


def stay_up(options: Options, nodes: int) -> None:
    """Runs until Ctrl-C or SIGTERM."""
    signal.signal(signal.SIGTERM, _interrupt)
    with ControlPlane(options, name="up") as server:
        if nodes:
            names = [f"node-{number:04d}" for number in range(nodes)]
            asyncio.run(create_objects(server, map(simulated_node, names)))
            asyncio.run(wait_nodes_ready(server, names))
        print(f"export KUBECONFIG={shlex.quote(str(server.kubeconfig))}")
        print(f"# logs in {server.logs}; Ctrl-C ends it and removes everything", flush=True)
        try:
            signal.pause()
        except KeyboardInterrupt:
            print("ending", file=sys.stderr)


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


if __name__ == "__main__":
    sys.exit(main())
