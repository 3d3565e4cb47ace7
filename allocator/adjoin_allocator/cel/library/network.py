"""Addresses, address blocks, URLs and named formats."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from adjoin_allocator.cel.addresses import CIDR as CIDRValue
from adjoin_allocator.cel.addresses import IP as IPValue
from adjoin_allocator.cel.addresses import parse_cidr, parse_ip
from adjoin_allocator.cel.declarations import Function, member, overload
from adjoin_allocator.cel.formats import FORMATS, NamedFormat
from adjoin_allocator.cel.library.parsing import parsed, parses
from adjoin_allocator.cel.types import BOOL, CIDR, FORMAT, INT, IP, STRING, URL, list_of, map_of, optional_of
from adjoin_allocator.cel.urls import URL as URLValue
from adjoin_allocator.cel.urls import is_url, parse_url
from adjoin_allocator.cel.values import NONE, MapValue, Optional


def _ip(text: str) -> IPValue:
    return parsed(parse_ip, text)


def _is_canonical(text: str) -> bool:
    return str(_ip(text).address) == text


def _cidr(text: str) -> CIDRValue:
    return parsed(parse_cidr, text)


def _contains_ip(block: CIDRValue, address: IPValue) -> bool:
    return block.contains(address.address)


def _contains_cidr(block: CIDRValue, other: CIDRValue) -> bool:
    return block.bits <= other.bits and block.contains(other.address)


def _query(url: URLValue) -> MapValue:
    return MapValue({name: (name, values) for name, values in url.parameters().items()})


def _constant(value: NamedFormat) -> Callable[[], NamedFormat]:
    return lambda: value


def _named(name: str) -> Optional:
    found = FORMATS.get(name)
    return NONE if found is None else Optional(found)


def _validate(named: NamedFormat, text: str) -> Optional:
    complaints = named.check(text)
    return Optional(tuple(complaints)) if complaints else NONE


FUNCTIONS: Final = (
    Function("url", (overload("string_to_url", (STRING,), URL, lambda text: parsed(parse_url, text)),)),
    Function("getScheme", (member("url_get_scheme", (URL,), STRING, lambda url: url.scheme),)),
    Function("getHost", (member("url_get_host", (URL,), STRING, lambda url: url.host),)),
    Function("getHostname", (member("url_get_hostname", (URL,), STRING, URLValue.hostname),)),
    Function("getPort", (member("url_get_port", (URL,), STRING, URLValue.port),)),
    Function("getEscapedPath", (member("url_get_escaped_path", (URL,), STRING, lambda url: url.path),)),
    Function("getQuery", (member("url_get_query", (URL,), map_of(STRING, list_of(STRING)), _query),)),
    Function("isURL", (overload("is_url_string", (STRING,), BOOL, is_url),)),
    Function(
        "ip",
        (overload("string_to_ip", (STRING,), IP, _ip), member("cidr_ip", (CIDR,), IP, lambda c: IPValue(c.address))),
    ),
    Function("family", (member("ip_family", (IP,), INT, IPValue.family),)),
    Function("ip.isCanonical", (overload("ip_is_canonical", (STRING,), BOOL, _is_canonical),)),
    Function("isUnspecified", (member("ip_is_unspecified", (IP,), BOOL, lambda ip: ip.address.is_unspecified),)),
    Function("isLoopback", (member("ip_is_loopback", (IP,), BOOL, lambda ip: ip.address.is_loopback),)),
    Function(
        "isLinkLocalMulticast",
        (member("ip_is_link_local_multicast", (IP,), BOOL, IPValue.is_link_local_multicast),),
    ),
    Function(
        "isLinkLocalUnicast", (member("ip_is_link_local_unicast", (IP,), BOOL, lambda ip: ip.address.is_link_local),)
    ),
    Function("isGlobalUnicast", (member("ip_is_global_unicast", (IP,), BOOL, IPValue.is_global_unicast),)),
    Function("isIP", (overload("is_ip", (STRING,), BOOL, lambda text: parses(parse_ip, text)),)),
    Function("cidr", (overload("string_to_cidr", (STRING,), CIDR, _cidr),)),
    Function(
        "containsIP",
        (
            member("cidr_contains_ip_string", (CIDR, STRING), BOOL, lambda c, text: _contains_ip(c, _ip(text))),
            member("cidr_contains_ip_ip", (CIDR, IP), BOOL, _contains_ip),
        ),
    ),
    Function(
        "containsCIDR",
        (
            member("cidr_contains_cidr_string", (CIDR, STRING), BOOL, lambda c, text: _contains_cidr(c, _cidr(text))),
            member("cidr_contains_cidr", (CIDR, CIDR), BOOL, _contains_cidr),
        ),
    ),
    Function("prefixLength", (member("cidr_prefix_length", (CIDR,), INT, lambda c: c.bits),)),
    Function("masked", (member("cidr_masked", (CIDR,), CIDR, CIDRValue.masked),)),
    Function("isCIDR", (overload("is_cidr", (STRING,), BOOL, lambda text: parses(parse_cidr, text)),)),
    Function("validate", (member("format-validate", (FORMAT, STRING), optional_of(list_of(STRING)), _validate),)),
    Function("format.named", (overload("format-named", (STRING,), optional_of(FORMAT), _named),)),
    *(
        Function(f"format.{name}", (overload(f"format.{name}", (), FORMAT, _constant(value)),))
        for name, value in FORMATS.items()
    ),
)
