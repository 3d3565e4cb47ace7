"""Networks of a pod's NICs, as the annotation that Multus reads.

In come the pool's template, the NICs of a replica and the annotation as it stands; out goes the annotation with one
entry a NIC. Entries of others stay as they are and come first. Ours are those whose interface is called `adjoin<i>`:
a name that only Adjoin gives, so they are replaced whoever wrote them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any, Final

from adjoin.api.scalars import DNS_LABEL, DNS_SUBDOMAIN
from adjoin.delivery.identities import pci_of
from adjoin_allocator.model import Device, Pool

PLACEHOLDER: Final = "{device}"
NAME_MAX: Final = 253
_OURS: Final = re.compile(r"adjoin[0-9]{1,4}")
_SHORT: Final = re.compile(r"(?:([^/@\s]+)/)?([^/@\s]+)(?:@([^/@\s]+))?")
"""`namespace/name@interface`, of which the name alone is required."""


class NetworksError(Exception):
    """The pod's networks cannot be written; `reason` is the word for it."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


def _legal(device: str) -> str:
    """A device's name as a part of the name of a Kubernetes object."""
    return re.sub(r"[^a-z0-9.-]+", "-", device.lower()).strip("-.")


def _network(template: str, device: str) -> tuple[str, str]:
    """Namespace and name of a device's NetworkAttachmentDefinition."""
    namespace, _, name = template.replace(PLACEHOLDER, _legal(device)).partition("/")
    legal = re.fullmatch(DNS_LABEL, namespace) and re.fullmatch(DNS_SUBDOMAIN, name) and len(name) <= NAME_MAX
    if not legal:
        text = f"{namespace}/{name}, made of delivery.networks.attachment {template} for device {device}, "
        raise NetworksError("InvalidNetworkName", f"{text}is no name of a NetworkAttachmentDefinition")
    return namespace, name


def parse_networks(text: str) -> list[dict[str, Any]]:
    """The annotation's entries, in either of its two forms: a JSON list, or names with commas between them.

    Raises `NetworksError`.
    """
    if not text.strip():
        return []
    if any(character in text for character in '[{"'):
        try:
            listed = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise NetworksError("InvalidNetworks", f"is not JSON ({error})") from None
        if not isinstance(listed, list) or not all(isinstance(each, dict) and each.get("name") for each in listed):
            raise NetworksError("InvalidNetworks", "must be a list of objects, each with a name")
        return listed
    entries = []
    for item in text.split(","):
        found = _SHORT.fullmatch(item.strip())
        if found is None:
            message = f"{item.strip()!r} is no <namespace>/<name>@<interface>, of which the name is required"
            raise NetworksError("InvalidNetworks", message)
        namespace, name, interface = found.groups()
        entries.append(
            {
                "name": name,
                **({"namespace": namespace} if namespace else {}),
                **({"interface": interface} if interface else {}),
            }
        )
    return entries


def attach(template: str, nics: Sequence[Device], pool: Pool | None, text: str) -> str:
    """The annotation of a pod that has these NICs; `text` is what it has now.

    The i-th NIC is interface `adjoin<i>`. Its PCI address goes along as `deviceID`, which Multus passes on to the
    plugins of networks that declare that capability. Raises `NetworksError`.
    """
    if not nics:
        return text
    foreign = [each for each in parse_networks(text) if not _OURS.fullmatch(str(each.get("interface") or ""))]
    ours = []
    for number, nic in enumerate(nics):
        namespace, name = _network(template, nic.id.device)
        address = pci_of(nic, pool)
        entry = {"namespace": namespace, "name": name, "interface": f"adjoin{number}"}
        ours.append({**entry, "deviceID": address} if address else entry)
    return json.dumps([*foreign, *ours], separators=(",", ":"))
