"""PCI addresses: one value for one function, however it is spelled."""

from __future__ import annotations

import re
from functools import lru_cache

PciAddress = tuple[int, ...]
"""Domain, bus, device and function; empty for none."""

_PCI = re.compile(r"(?:([0-9a-f]{1,8}):)?([0-9a-f]{1,2}):([0-9a-f]{1,2})\.([0-7])", re.IGNORECASE)


@lru_cache(maxsize=4096)
def pci_address(text: str) -> PciAddress:
    """A PCI address as numbers, so that `00000000:07:00.0` and `0000:07:00.0` are one; empty when it is none."""
    found = _PCI.fullmatch(text)
    return tuple(int(part or "0", 16) for part in found.groups()) if found else ()


def spelling(address: PciAddress) -> str:
    """The usual way to write an address, as the kernel does."""
    return "{:04x}:{:02x}:{:02x}.{:x}".format(*address)
