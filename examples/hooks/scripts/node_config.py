#!/usr/bin/env python3
"""Init and cleanup hook: has NVIDIA's GPU operator configure the node, by the node label that it watches.

For `mig-parted` the label `nvidia.com/mig.config` names an entry of its ConfigMap, and `nvidia.com/mig.config.state`
says how that went; for the device plugin `nvidia.com/device-plugin.config` names one of its own. Such a configuration
is the whole node's: this hook is for shares that have all cards of a node. Init sets the label; a part that is given
back changes nothing, and a whole card on its way back sets the label to `node-config-whole`.

Needs a ServiceAccount that may get and patch nodes: `node-config-rbac.yaml`.
"""

from __future__ import annotations

import json
import os
import ssl
import time
import urllib.error
import urllib.request
from dataclasses import dataclass
from typing import Any

from hook import CannotJudge, Check, Context, Device, Parameter, Verdict, run

ACCOUNT = "/var/run/secrets/kubernetes.io/serviceaccount"
PATIENCE_SECONDS = 220
"""mig-parted stops the node's GPU clients, repartitions and starts them again; most of it below two minutes."""
LABELS = {"mig": "nvidia.com/mig.config", "plugin": "nvidia.com/device-plugin.config"}


@dataclass(frozen=True)
class Facts:
    """The label's value and what the operator says of it ("" where it says nothing)."""

    value: str
    state: str = ""


def observe(context: Context) -> list[Facts]:
    """Sets the label and waits: one answer for all devices, as they are on one node."""
    found = configured(context)
    return [found for _ in context.devices]


def wanted(context: Context) -> str:
    """The configuration that the node is to have; "" where it is to stay as it is."""
    if context.phase == "init":
        return context.parameters["node-config"]
    # A part that is given back changes nothing for others.
    whole = any(not device.part for device in context.devices)
    return context.parameters["node-config-whole"] if whole else ""


def configured(context: Context) -> Facts:
    """Raises CannotJudge: the API server does not answer, or refuses."""
    kind, target = context.parameters["node-config-by"], wanted(context)
    label = LABELS[kind]
    labels = node()
    if target and labels.get(label) != target:
        node({"metadata": {"labels": {label: target}}})
    deadline = time.monotonic() + PATIENCE_SECONDS
    while True:
        labels = node()
        state = labels.get(f"{label}.state", "") if kind == "mig" else ""
        if kind != "mig" or not target or state in ("success", "failed") or time.monotonic() > deadline:
            return Facts(labels.get(label, ""), state)
        time.sleep(5)


def node(patch: dict[str, Any] | None = None) -> dict[str, str]:
    """The node's labels, after a merge patch if there is one."""
    host, port = os.environ.get("KUBERNETES_SERVICE_HOST", ""), os.environ.get("KUBERNETES_SERVICE_PORT", "443")
    name = os.environ.get("ADJOIN_NODE", "")
    if not host or not name or "/" in name:
        raise CannotJudge("no API server, or no node, is named in the environment")
    try:
        with open(os.path.join(ACCOUNT, "token"), encoding="ascii") as file:
            token = file.read().strip()
        request = urllib.request.Request(f"https://{host}:{port}/api/v1/nodes/{name}")
        request.add_header("Authorization", f"Bearer {token}")
        if patch is not None:
            request.method = "PATCH"
            request.data = json.dumps(patch).encode()
            request.add_header("Content-Type", "application/merge-patch+json")
        trust = ssl.create_default_context(cafile=os.path.join(ACCOUNT, "ca.crt"))
        with urllib.request.urlopen(request, timeout=20, context=trust) as answer:
            found = json.load(answer)
    except (OSError, ValueError, urllib.error.URLError) as error:
        raise CannotJudge(f"node {name}: {error}") from error
    labels = found.get("metadata", {}).get("labels", {})
    return {str(key): str(value) for key, value in labels.items()}


def judge(context: Context, device: Device, facts: Facts) -> Verdict:
    """Right is only what the node says."""
    target = wanted(context)
    if target and facts.value != target:
        return Verdict([f"the node is configured as {facts.value or 'nothing'}, not as {target}"])
    asked = bool(target) and context.parameters["node-config-by"] == "mig"
    if facts.state == "failed" or (asked and facts.state != "success"):
        return Verdict([f"configuration {target or facts.value}: {facts.state or 'nobody says how it went'}"])
    return Verdict()


CHECK = Check(
    says="The node is configured",
    accepts=lambda device: bool(device.share),
    wants="device of a share",
    observe=observe,
    judge=judge,
    healthy=lambda context, device: Facts(wanted(context), "success"),
    broken=lambda context, device: Facts(wanted(context) or "other", "failed"),
    parameters={
        "node-config-by": Parameter("mig", "mig|plugin"),
        "node-config": Parameter("all-balanced", r"[\w.-]{1,63}"),
        "node-config-whole": Parameter("all-disabled", r"[\w.-]{1,63}"),
    },
)

if __name__ == "__main__":
    run(CHECK)
