"""Runs `plan` in a test: objects in, what it printed out."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Iterable, Mapping
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from typing import Any
from unittest.mock import patch

import yaml

from adjoin.cli import main

Obj = Mapping[str, Any]


@dataclass(frozen=True)
class Ran:
    """What a run of the command left behind."""

    status: int
    out: str
    err: str

    @property
    def shown(self) -> dict[str, Any]:
        """The printed object."""
        made: dict[str, Any] = json.loads(self.out)
        return made

    @property
    def claims(self) -> dict[str, dict[str, Any]]:
        """Its claims by name."""
        return {claim["name"]: claim for claim in self.shown["claims"]}

    def counts(self, pool: str, device: str) -> dict[str, int]:
        """Counts of a device name of a pool."""
        found = next(each for each in self.shown["pools"] if each["name"] == pool)
        made: dict[str, int] = found["devices"][device]
        return made

    def devices(self, claim: str, index: int = 0) -> dict[str, list[str]]:
        """Names of the devices of a replica, by request."""
        replica = next(each for each in self.claims[claim]["replicas"] if each["index"] == index)
        made: dict[str, list[str]] = {}
        for device in replica["devices"]:
            made.setdefault(device["request"], []).append(device["device"])
        return made

    def codes(self, claim: str) -> list[str]:
        """Codes of a claim's reasons."""
        return [reason["code"] for reason in self.claims[claim]["reasons"]]


def run_plan(*arguments: str, stdin: str = "") -> Ran:
    """Runs `adjoin plan` with these arguments."""
    out, err = io.StringIO(), io.StringIO()
    with patch.object(sys, "stdin", io.StringIO(stdin)), redirect_stdout(out), redirect_stderr(err):
        status = main(["plan", *arguments])
    return Ran(status, out.getvalue(), err.getvalue())


def plan_objects(objects: Iterable[Obj], *arguments: str) -> Ran:
    """Plans these objects, given as YAML on the standard input, and prints JSON."""
    text = yaml.safe_dump_all([dict(obj) for obj in objects], sort_keys=False)
    return run_plan("-f", "-", "-o", "json", *arguments, stdin=text)


def with_status(objects: Iterable[Obj], ran: Ran) -> list[Obj]:
    """The objects with what a plan said of their claims as status."""
    planned = {(claim["namespace"], claim["name"]): claim for claim in ran.shown["claims"]}
    fed = []
    for obj in objects:
        claim = planned.get((obj["metadata"].get("namespace", "default"), obj["metadata"]["name"]))
        if obj["kind"] != "DeviceClaim" or claim is None:
            fed.append(obj)
            continue
        status = {
            "phase": claim["phase"],
            "conditions": claim["conditions"],
            "reasons": claim["reasons"],
            "nearest": claim["nearest"],
            "allocation": {"gap": claim["gap"], "replicas": claim["replicas"]},
        }
        fed.append({**obj, "status": status})
    return fed
