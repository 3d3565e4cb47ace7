"""IP addresses and address blocks.

Comes in: text. Goes out: `IP` and `CIDR`, immutable values. IPv4 addresses written as IPv6 and addresses with a zone
are refused.
"""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from typing import ClassVar, Final

Address = ipaddress.IPv4Address | ipaddress.IPv6Address

_LINK_LOCAL_MULTICAST_V4: Final = ipaddress.ip_network("224.0.0.0/24")
_BROADCAST: Final = ipaddress.ip_address("255.255.255.255")


@dataclass(frozen=True, slots=True)
class IP:
    """An address."""

    address: Address

    cel_type: ClassVar[str] = "net.IP"
    comparable_to_itself_only: ClassVar[bool] = True

    def family(self) -> int:
        """4 or 6."""
        return self.address.version

    def is_link_local_multicast(self) -> bool:
        """In 224.0.0.0/24, or an IPv6 multicast address of link scope."""
        if isinstance(self.address, ipaddress.IPv4Address):
            return self.address in _LINK_LOCAL_MULTICAST_V4
        return (int(self.address) >> 112) & 0xFF0F == 0xFF02

    def is_global_unicast(self) -> bool:
        """Neither unspecified, loopback, multicast, link-local nor broadcast; private addresses are global in this
        sense."""
        address = self.address
        return not (
            address.is_unspecified
            or address.is_loopback
            or address.is_multicast
            or address.is_link_local
            or address == _BROADCAST
        )


@dataclass(frozen=True, slots=True)
class CIDR:
    """An address with the length of a prefix; the address may have bits behind the prefix."""

    address: Address
    bits: int

    cel_type: ClassVar[str] = "net.CIDR"
    comparable_to_itself_only: ClassVar[bool] = True

    def contains(self, address: Address) -> bool:
        """Whether the address has this prefix."""
        if address.version != self.address.version:
            return False
        return (int(self.address) ^ int(address)) >> (self.address.max_prefixlen - self.bits) == 0

    def masked(self) -> CIDR:
        """The same block with zeros behind the prefix."""
        rest = self.address.max_prefixlen - self.bits
        return CIDR(type(self.address)(int(self.address) >> rest << rest), self.bits)

    def __str__(self) -> str:
        return f"{self.address}/{self.bits}"


def parse_ip(text: str) -> IP:
    """The address that `text` means. Raises `ValueError`."""
    if "%" in text or "/" in text:
        raise ValueError(f"{text!r} is no IP address")
    address = ipaddress.ip_address(text)
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
        raise ValueError(f"{text!r} is an IPv4 address written as IPv6")
    return IP(address)


def parse_cidr(text: str) -> CIDR:
    """The block that `text` means. Raises `ValueError`."""
    host, slash, bits = text.rpartition("/")
    if not slash or not bits.isascii() or not bits.isdigit() or len(bits) > 3 or (len(bits) > 1 and bits[0] == "0"):
        raise ValueError(f"{text!r} is no CIDR")
    address = parse_ip(host).address
    if int(bits) > address.max_prefixlen:
        raise ValueError(f"{text!r} is no CIDR: the prefix is too long")
    return CIDR(address, int(bits))
