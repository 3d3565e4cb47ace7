"""What all hooks here share: the contract with Adjoin (environment, exit status, message), and how tools are run.

In comes the environment of a hook Job (`ADJOIN_DEVICES` and so on), out goes an exit status and the JSON of the
termination message. A hook is a `Check`: `observe` asks the machine for facts, the pure `judge` says what they mean.
Whatever a hook cannot judge is never taken for healthy: it ends with status 2, without naming devices, so that Adjoin
holds back all of them. Nothing that came from outside reaches a shell or becomes a path.

Runs on Python 3.8 and newer, with nothing but the standard library.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import signal
import subprocess
import sys
from dataclasses import dataclass, field
from typing import Any, Callable, NoReturn, Sequence

OK, AT_FAULT, CANNOT_JUDGE = 0, 1, 2
"""Exit status: all well; a device is at fault; nobody knows. Adjoin takes 1 and 2 for failure."""

DEADLINE_SECONDS = 240
"""No hook runs longer, whatever hangs: less than a hook's default `timeout` of 5m, so that the message gets out."""

MESSAGE_BYTES = 4096
"""Kubernetes keeps so much of a termination message (kubernetes.io, "Determine the Reason for Pod Failure")."""

SENTENCE_CHARACTERS = 1000
"""Of that, for the sentence; JSON may need two bytes for one character of it, and the names must fit too."""


class CannotJudge(Exception):
    """A tool is missing or broken, or the input makes no sense: nothing can be said of any device."""


@dataclass(frozen=True)
class Device:
    """One entry of ADJOIN_DEVICES. Its strings are data, never code: they are compared, and printed in the message."""

    kind: str
    driver: str
    name: str
    id: str
    attributes: dict[str, Any] = field(default_factory=dict)
    capacity: dict[str, str] = field(default_factory=dict)
    owner: str | None = None
    share: dict[str, Any] | None = None
    """How it is divided, None where it is meant whole. With `part` a part of it is meant, else the device on its way
    into the mode or back."""

    @property
    def part(self) -> str:
        """By what a part is reported; "" where the whole device is meant."""
        return str((self.share or {}).get("part") or "")

    def attribute(self, name: str) -> Any:
        """The attribute of that name in whatever domain; None when absent, or when two domains disagree."""
        return _in_any_domain(self.attributes, name)

    def capacity_of(self, name: str) -> Any:
        """The same for a capacity."""
        return _in_any_domain(self.capacity, name)


def _in_any_domain(values: dict[str, Any], name: str) -> Any:
    found = [value for key, value in sorted(values.items()) if key.rpartition("/")[2] == name]
    return found[0] if found and all(value == found[0] for value in found) else None


@dataclass(frozen=True)
class Parameter:
    """A value that a pool may let claims choose; `pattern` is what is accepted."""

    default: str
    pattern: str


@dataclass(frozen=True)
class Context:
    """What this run is about."""

    phase: str
    claim_uid: str
    devices: Sequence[Device]
    parameters: dict[str, str]
    sysfs: str


@dataclass
class Verdict:
    """What is wrong with one device, and what is worth saying although it is not wrong."""

    faults: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Check:
    """A hook. `observe` gives the facts of each device, in the order of `context.devices`; `judge` knows nothing else.

    `accepts` tells which devices it can judge at all (`wants` in words); it is asked in a simulation too. `healthy` and
    `broken` are the facts that --simulate assumes.
    """

    says: str
    accepts: Callable[[Device], bool]
    wants: str
    observe: Callable[[Context], Sequence[Any]]
    judge: Callable[[Context, Device, Any], Verdict]
    healthy: Callable[[Context, Device], Any]
    broken: Callable[[Context, Device], Any]
    parameters: dict[str, Parameter] = field(default_factory=dict)
    phases: tuple[str, ...] = ("init", "cleanup")
    report: Callable[[Context, Device, Any], dict[str, Any]] | None = None
    """What is told of a part that was made and read back; Adjoin compares it with what was asked."""


@dataclass(frozen=True)
class Ran:
    """How a tool ended."""

    status: int
    out: str
    err: str


def run_tool(argv: Sequence[str], seconds: float, env: dict[str, str] | None = None, text: str | None = None) -> Ran:
    """Runs a program without a shell; `text` is what it reads.

    Raises:
        CannotJudge: It is not there, or did not end in time. It is not waited for then: a process that hangs in the
            driver does not even die of SIGKILL.
    """
    try:
        tool = start_tool(argv, env, reads=text is not None)
    except OSError as error:
        raise CannotJudge(f"{argv[0]} cannot be run: {error.strerror}") from error
    try:
        out, err = tool.communicate(text, timeout=seconds)
    except subprocess.TimeoutExpired:
        tool.kill()
        raise CannotJudge(f"{argv[0]} did not answer within {seconds:g} s") from None
    return Ran(tool.returncode, out, err)


def start_tool(argv: Sequence[str], env: dict[str, str] | None = None, *, reads: bool = False) -> subprocess.Popen[str]:
    """Starts a program without a shell; `env` is added to this process's own. Raises OSError."""
    return subprocess.Popen(
        list(argv),
        stdin=subprocess.PIPE if reads else subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        encoding="utf-8",
        errors="replace",
        env={**os.environ, "LC_ALL": "C", **(env or {})},
    )


def run(check: Check) -> NoReturn:
    """The main program of every hook; never returns."""
    parser = argparse.ArgumentParser(description=check.says)
    parser.add_argument("--simulate", action="store_true", help="call no tool; assume what a healthy device would say")
    parser.add_argument("--termination-log", default="/dev/termination-log", help="where the message goes")
    parser.add_argument("--sysfs", default="/sys", help="where sysfs is mounted")
    options = parser.parse_args()
    log = options.termination_log

    def too_late(*_: object) -> None:
        _say(log, f"not done after {DEADLINE_SECONDS} s", None)
        os._exit(CANNOT_JUDGE)

    signal.signal(signal.SIGALRM, too_late)
    signal.alarm(DEADLINE_SECONDS)
    try:
        context = _context(check, options.sysfs)
        facts = _simulated(check, context) if options.simulate else check.observe(context)
        verdicts = [check.judge(context, device, fact) for device, fact in zip(context.devices, facts)]
        if len(verdicts) != len(context.devices):
            raise CannotJudge(f"{len(context.devices) - len(verdicts)} devices were not looked at")
        parts = _parts(check, context, facts) if not any(verdict.faults for verdict in verdicts) else {}
    except CannotJudge as error:
        _end(log, CANNOT_JUDGE, str(error), None)
    except Exception as error:
        # A mistake in a hook must not pass for a healthy device either.
        _end(log, CANNOT_JUDGE, f"{type(error).__name__}: {error}", None)
    found = list(zip(context.devices, verdicts))
    failed = [device.name for device, verdict in found if verdict.faults]
    if failed:
        wrong = "; ".join(f"{device.name}: {', '.join(verdict.faults)}" for device, verdict in found if verdict.faults)
        _end(log, AT_FAULT, wrong, failed)
    notes = "".join(f"; {device.name}: {', '.join(verdict.notes)}" for device, verdict in found if verdict.notes)
    simulated = " (simulated: no device was touched)" if options.simulate else ""
    _end(log, OK, f"{check.says}: {', '.join(device.name for device, _ in found)}{notes}{simulated}", [], parts)


def _parts(check: Check, context: Context, facts: Sequence[Any]) -> dict[str, Any]:
    if check.report is None or context.phase != "init":
        return {}
    return {
        device.part: check.report(context, device, fact) for device, fact in zip(context.devices, facts) if device.part
    }


def _simulated(check: Check, context: Context) -> list[Any]:
    fails = os.environ.get("ADJOIN_SIMULATE_FAIL", "")
    return [
        check.broken(context, device) if device.name == fails else check.healthy(context, device)
        for device in context.devices
    ]


def _context(check: Check, sysfs: str) -> Context:
    phase, claim_uid = os.environ.get("ADJOIN_PHASE", ""), os.environ.get("ADJOIN_CLAIM_UID", "")
    if phase not in check.phases:
        raise CannotJudge(f"ADJOIN_PHASE is {phase!r}; this hook is for {' and '.join(check.phases)}")
    parameters = {}
    for name, parameter in check.parameters.items():
        variable = f"ADJOIN_PARAMETER_{name.upper().replace('-', '_')}"
        parameters[name] = os.environ.get(variable, parameter.default)
        if not re.fullmatch(parameter.pattern, parameters[name]):
            raise CannotJudge(f"{variable} is {parameters[name]!r}; it must match {parameter.pattern}")
    devices = _devices(os.environ.get("ADJOIN_DEVICES", ""))
    for device in devices:
        # A cleanup that comes late must not touch a device that somebody else has by now.
        if not check.accepts(device):
            raise CannotJudge(f"{device.name} is no {check.wants}: name such devices in the hook's devices")
        if device.owner is not None and device.owner != claim_uid:
            raise CannotJudge(f"{device.name} belongs to claim {device.owner} by now, not to {claim_uid or 'none'}")
    return Context(phase, claim_uid, devices, parameters, sysfs)


def _devices(text: str) -> list[Device]:
    try:
        entries = json.loads(text)
    except (ValueError, RecursionError):
        raise CannotJudge("ADJOIN_DEVICES is not JSON") from None
    if not isinstance(entries, list) or not entries:
        raise CannotJudge("ADJOIN_DEVICES is not a list of devices")
    devices = []
    for position, entry in enumerate(entries):
        entry = entry if isinstance(entry, dict) else {}
        names = [entry.get(key) for key in ("name", "driver", "device", "id")]
        maps = [entry.get(key, {}) for key in ("attributes", "capacity")]
        owner, share = entry.get("owner"), entry.get("share")
        if not all(isinstance(name, str) and name for name in names) or not all(isinstance(m, dict) for m in maps):
            raise CannotJudge(
                f"ADJOIN_DEVICES[{position}] lacks name, driver, device or id, or has them of a wrong type"
            )
        if owner is not None and not isinstance(owner, str):
            raise CannotJudge(f"ADJOIN_DEVICES[{position}].owner is not a string")
        if share is not None and not isinstance(share, dict):
            raise CannotJudge(f"ADJOIN_DEVICES[{position}].share is not an object")
        devices.append(Device(*names, *maps, owner, share))
    return devices


def _end(
    log: str, status: int, message: str, failed: list[str] | None, parts: dict[str, Any] | None = None
) -> NoReturn:
    _say(log, message, failed, parts)
    # Not sys.exit: a child that hangs in the driver must not keep the hook from ending.
    sys.stdout.flush()
    os._exit(status)


def _say(log: str, message: str, failed: list[str] | None, parts: dict[str, Any] | None = None) -> None:
    """Leaves the message for Adjoin, and in the log. `failed` is None when nobody knows which devices are at fault.
    `parts` come through whole, whatever else is cut."""
    sentence = "".join(c if " " <= c <= "~" else "?" for c in " ".join(message.split()))
    if len(sentence) > SENTENCE_CHARACTERS:
        sentence = f"{sentence[: SENTENCE_CHARACTERS - 3]}..."
    text = json.dumps({"message": sentence} if failed is None else {"message": sentence, "failed": failed})
    if parts:
        text = json.dumps({"message": sentence[:200], "failed": [], "parts": parts})
        if len(text) > MESSAGE_BYTES:
            text = json.dumps({"parts": parts})
    if len(text) > MESSAGE_BYTES:
        # Cut JSON is no JSON. Without names Adjoin holds back all devices of the set, which is the safe side.
        text = json.dumps({"message": sentence})
    print(text, flush=True)
    try:
        with open(log, "w", encoding="ascii") as file:
            file.write(text)
    except OSError as error:
        # Outside of a pod there is none.
        print(f"no termination message: {error.strerror}", file=sys.stderr)
