"""Where a command reads objects from: files, or the cluster that a kubeconfig names.

In come the options of a command, out goes an `Input` and whether it is a cluster's. The client is loaded for a cluster
alone.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass

from adjoin.cli.documents import UnreadableInput, read_documents
from adjoin.cli.exits import BAD_INPUT, FAILED
from adjoin.cli.objects import DEFAULT_NAMESPACE, BadInput, Input, read_input
from adjoin.cli.progress import Tell
from adjoin.facts import timestamp
from adjoin.records import UnreadableRecord


@dataclass(frozen=True, slots=True)
class Where:
    """What a command was told to read.

    Attributes:
        files: Files, directories or `-`; empty: the cluster.
        kubeconfig: Path of a kubeconfig, or None for the one that kubectl would use.
        context: Its context, or None for the current one.
        operator_namespace: Where the operator runs; "": found out on a cluster, any for files.
    """

    files: Sequence[str] = ()
    kubeconfig: str | None = None
    context: str | None = None
    operator_namespace: str = ""


@dataclass(frozen=True, slots=True, eq=False)
class Source:
    """What was read.

    Attributes:
        live: It is a cluster's.
        namespace: The namespace that names without one are in.
    """

    given: Input
    live: bool
    namespace: str


class NoAnswer(Exception):
    """A command cannot answer: the text says why, `status` is how the process ends."""

    def __init__(self, message: str, status: int = BAD_INPUT) -> None:
        super().__init__(message)
        self.status = status


def read_source(where: Where, tell: Tell) -> Source:
    """Reads what a command was told to read. Raises `NoAnswer`."""
    if where.files:
        tell("reading files")
        try:
            given = read_input(read_documents(where.files, sys.stdin), where.operator_namespace)
        except (UnreadableInput, BadInput) as error:
            raise NoAnswer(str(error)) from None
        return Source(given, live=False, namespace=DEFAULT_NAMESPACE)
    from adjoin.cli.live import LiveError, current_namespace, find_target, read_cluster

    try:
        target = find_target(where.kubeconfig, where.context, where.operator_namespace, os.environ)
        given = read_cluster(target, heard=lambda kind, count: tell(f"reading {kind}", count))
        return Source(given, live=True, namespace=current_namespace(target))
    except LiveError as error:
        raise NoAnswer(str(error), FAILED) from None


def moment(text: str | None) -> float | None:
    """The time that `--now` says, or None. Raises `NoAnswer`."""
    try:
        if text is not None and "T" not in text.upper():
            raise ValueError(text)
        return timestamp(text)
    except ValueError:
        raise NoAnswer(f"--now {text}: expected a time such as 2026-12-01T08:00:00Z") from None


def complain(error: NoAnswer | UnreadableRecord) -> int:
    """Says on the standard error why there is no answer, and returns how the process ends."""
    print(f"error: {error}".replace("\n", "\nerror: "), file=sys.stderr)
    return error.status if isinstance(error, NoAnswer) else BAD_INPUT


def warn(sentences: Sequence[str]) -> None:
    """Says these on the standard error."""
    for sentence in sentences:
        print(f"warning: {sentence}", file=sys.stderr)
