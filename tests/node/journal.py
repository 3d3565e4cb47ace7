"""Pods and hooks that write into one journal on the node what they are and what they have, line by line.

What is written in one container before another begins stands above what that one writes: the order is that of the
containers themselves, whatever anybody reports of them.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from tests.node.image import WORKLOAD
from tests.node.node import JOURNAL, Node
from tests.support.site import pod

FILE = "lines"
VOLUME = {"name": "journal", "hostPath": {"path": JOURNAL, "type": "Directory"}}
MOUNT = {"name": "journal", "mountPath": JOURNAL}
# Devices of the example driver stand in the environment.
DEVICES = r"""$(env | sed -n 's/^GPU_DEVICE_[0-9]*=//p' | sort | tr '\n' ' ')"""


@dataclass(frozen=True, slots=True)
class Line:
    """`who` is a pod, or a phase with its claim; `devices` are those within the container, `told` those of
    ADJOIN_DEVICES."""

    who: str
    what: str
    devices: tuple[str, ...] = ()
    told: tuple[str, ...] = ()


def read(node: Node) -> list[Line]:
    """The journal so far, in order."""
    path = node.root / "journal" / FILE
    lines = []
    for text in path.read_text().splitlines() if path.exists() else ():
        who, what, devices, told = text.split("|")
        names = tuple(sorted(each["device"] for each in json.loads(told))) if told else ()
        lines.append(Line(who, what, tuple(devices.split()), names))
    return lines


def clear(node: Node) -> None:
    (node.root / "journal" / FILE).unlink(missing_ok=True)


def _write(who: str, what: str, told: str = "") -> str:
    return f'echo "{who}|{what}|{DEVICES}|{told}" >> {JOURNAL}/{FILE}'


def hook(then: str = "true") -> dict[str, Any]:
    """A hook's template: begins, does something, writes that it ends if that succeeded."""
    who = "$ADJOIN_PHASE $ADJOIN_CLAIM"
    script = f"{_write(who, 'begin', '$ADJOIN_DEVICES')}\n{then} || exit 1\n{_write(who, 'end', '$ADJOIN_DEVICES')}"
    return {
        "spec": {
            "containers": [
                {
                    "name": "main",
                    "image": WORKLOAD,
                    "command": ["sh", "-c", script],
                    "terminationMessagePolicy": "FallbackToLogsOnError",
                    "volumeMounts": [MOUNT],
                }
            ],
            "volumes": [VOLUME],
        }
    }


def worker(name: str, claim: str) -> dict[str, Any]:
    """A pod that needs a moment to end when it is asked to."""
    made = pod(name, claim)
    spec = made["spec"]
    stop = _quoted(f"sleep 1; {_write(name, 'end')}; exit 0")
    script = f"trap '{stop}' TERM\n{_write(name, 'begin')}\nwhile true; do sleep 0.1; done"
    spec["terminationGracePeriodSeconds"] = 30
    spec["containers"][0] |= {
        "command": ["sh", "-c", script],
        "volumeMounts": [MOUNT],
    }
    spec["volumes"] = [VOLUME]
    return made


def _quoted(script: str) -> str:
    """Within single quotes of a shell."""
    return script.replace("'", "'\\''")
