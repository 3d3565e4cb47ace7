"""What containers on the node really have, told by themselves."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from tests.controlplane.server import ControlPlane
from tests.node.node import TEST_DRIVER, Driver

# The kubelet mounts a file for each request of each ResourceClaim.
METADATA = "/var/run/kubernetes.io/dra-device-attributes/resourceclaims"


def output(plane: ControlPlane, namespace: str, pod: str, *command: str, container: str = "main") -> str:
    """What a command prints that is run in a container."""
    return plane.kubectl("exec", f"--namespace={namespace}", f"--container={container}", pod, "--", *command).stdout


def devices_within(
    plane: ControlPlane, namespace: str, pod: str, driver: Driver, *, container: str = "main"
) -> list[str]:
    """Names of the driver's devices in a running container, sorted; one that is there twice is named twice."""
    if driver.name == TEST_DRIVER.name:
        script = f"for f in {METADATA}/*/*/*; do test -f $f && cat $f; done; true"
        text = output(plane, namespace, pod, "sh", "-c", script, container=container)
        return sorted(
            device["name"]
            for document in _documents(text)
            for request in document["requests"]
            for device in request["devices"]
            if device["driver"] == driver.name
        )
    environment = output(plane, namespace, pod, "env", container=container)
    return sorted(re.findall(r"^GPU_DEVICE_\d+=(\S+)$", environment, re.MULTILINE))


def _documents(text: str) -> Iterator[dict[str, Any]]:
    """JSON documents one after the other."""
    decoder = json.JSONDecoder()
    position = 0
    while text[position:].strip():
        position += len(text[position:]) - len(text[position:].lstrip())
        document, position = decoder.raw_decode(text, position)
        yield document
