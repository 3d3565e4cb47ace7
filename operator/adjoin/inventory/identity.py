"""Which hardware a device is, and whether it is the one that a status speaks of.

In come what devices publish and the hardware id that a claim recorded; out go ids and verdicts. Names of devices are
positions in a driver's list and may move to other hardware; a uuid or PCI address does not. Where only the name is
known on one of the two sides, the name decides: nothing then speaks against it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from adjoin.facts import PublishedDevice
from adjoin.inventory.pools import PoolRules
from adjoin_allocator.pci import pci_address


@dataclass(frozen=True, slots=True)
class Identity:
    """What identifies a device beside its name.

    Attributes:
        uuid: Its uuid, or "".
        pci: Its PCI address as it is published, or "" where there is none or another device has the same.
        fallback: `<node>/<name>`.
    """

    uuid: str
    pci: str
    fallback: str

    @property
    def text(self) -> str:
        """The hardware id: uuid, else PCI address, else `<node>/<name>`."""
        return self.uuid or self.pci or self.fallback

    @property
    def proofs(self) -> tuple[str, ...]:
        """What would prove the same hardware under another name."""
        return tuple(proof for proof in (self.uuid, spelled(self.pci)) if proof)

    def contradicts(self, recorded: str) -> bool:
        """Whether a device of the same name with the recorded hardware id is other hardware than this one."""
        if not recorded or recorded == self.uuid:
            return False
        address = _address(recorded)
        if address:
            return bool(self.pci) and pci_address(self.pci) != address
        return bool(self.uuid) and "/" not in recorded


def _address(text: str) -> tuple[int, ...]:
    # Most ids are uuids, every one different: not worth a place in anybody's memory.
    return pci_address(text) if ":" in text else ()


def spelled(text: str) -> str:
    """A PCI address in one spelling; anything else as it is."""
    address = _address(text)
    return "{:04x}:{:02x}:{:02x}.{:x}".format(*address) if address else text


def identify(node: str, devices: Sequence[tuple[PoolRules, PublishedDevice]]) -> list[Identity]:
    """The identities of one driver pool's devices on one node, in their order.

    An id that two of them share (partitions of one card have its PCI address) identifies neither.
    """
    uuids = _unique([rules.uuid_of(device) for rules, device in devices])
    addresses = _unique([rules.pci_of(device) for rules, device in devices])
    return [
        Identity(uuid, address, f"{node}/{device.name}")
        for uuid, address, (_, device) in zip(uuids, addresses, devices, strict=True)
    ]


def _unique(texts: list[str]) -> Iterable[str]:
    if len(set(texts)) == len(texts):
        return texts
    times = Counter(texts)
    return [text if times[text] == 1 else "" for text in texts]
