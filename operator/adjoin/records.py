"""Decisions in files: what the allocator was asked and what it answered, to be looked at and replayed elsewhere.

In come a snapshot, the time and a plan; out goes a file (JSON, compressed when its name ends in `.gz`), readable by its
owner alone, which appears whole or not at all. The running operator keeps its last decision in a `Recorder` and writes
it only when it is told to. A record holds names of claims, nodes and devices, and nothing secret of the cluster.
"""

from __future__ import annotations

import gzip
import json
import os
import zlib
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from adjoin_allocator import Plan, Snapshot
from adjoin_allocator.wire_format import FormatError, Record, decode_record, encode_plan, encode_record

KEPT: Final = 5
"""Files that the operator leaves in its folder; the oldest goes when another one comes."""

_GZIP: Final = b"\x1f\x8b"
_PATTERN: Final = "adjoin-*.json.gz"


class UnreadableRecord(Exception):
    """A file that is not there or is no record. The text names it."""


def dumped(value: Any) -> str:
    """A JSON value as text: one value, one text."""
    return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))


def make_record(snapshot: Snapshot, plan: Plan, now: float) -> Record:
    """A decision as a record."""
    return Record(snapshot, now, encode_plan(plan))


def write_record(path: Path, record: Record) -> None:
    """Writes a file, readable by its owner alone. Raises `OSError`."""
    data = (dumped(encode_record(record)) + "\n").encode()
    if path.suffix == ".gz":
        # No name and no time inside: one record, one file.
        data = gzip.compress(data, compresslevel=6, mtime=0)
    unfinished = path.with_name(f".{path.name}.unfinished")
    with open(os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
        file.write(data)
    unfinished.replace(path)


def read_record(path: Path) -> Record:
    """Reads a file, compressed or not. Raises `UnreadableRecord`."""
    try:
        data = path.read_bytes()
        return parse_record(str(path), gzip.decompress(data) if data.startswith(_GZIP) else data)
    except OSError as error:
        raise UnreadableRecord(f"{path}: {error.strerror or error}") from None
    except (EOFError, zlib.error) as error:
        raise UnreadableRecord(f"{path}: {error}") from None


def parse_record(name: str, data: bytes | str) -> Record:
    """Reads a text. Raises `UnreadableRecord` that names `name`."""
    try:
        return decode_record(json.loads(data))
    except FormatError as error:
        raise UnreadableRecord(f"{name}: {error}") from None
    except (ValueError, RecursionError) as error:
        raise UnreadableRecord(f"{name}: not JSON: {error}") from None


@dataclass(frozen=True, slots=True, eq=False)
class _Decision:
    snapshot: Snapshot
    plan: Plan
    now: float


class Recorder:
    """Keeps the last decision and writes it into `folder` on request."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._last: _Decision | None = None

    def keep(self, snapshot: Snapshot, plan: Plan, now: float) -> None:
        """Takes a decision; the one before is forgotten."""
        self._last = _Decision(snapshot, plan, now)

    def write(self) -> Path | None:
        """Writes the last decision and returns the file; None when there was none yet. Raises `OSError`."""
        last = self._last
        if last is None:
            return None
        when = datetime.fromtimestamp(last.now, UTC).strftime("%Y%m%dT%H%M%S.%fZ")
        path = self._folder / f"adjoin-{when}.json.gz"
        write_record(path, make_record(last.snapshot, last.plan, last.now))
        for old in sorted(self._folder.glob(_PATTERN))[:-KEPT]:
            old.unlink(missing_ok=True)
        return path
