"""Absolute URLs, as Go takes them apart.

Comes in: text. Goes out: `URL`, an immutable value. What a web server would not take as a request target is no URL
here: a scheme or a leading slash is needed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Final
from urllib.parse import quote

from adjoin_allocator.cel.addresses import parse_ip

_LETTERS: Final = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ")
_DIGITS: Final = frozenset("0123456789")
_HEX_DIGITS: Final = frozenset("0123456789abcdefABCDEF")
_UNRESERVED: Final = _LETTERS | _DIGITS | frozenset("-._~")
_HOST: Final = _UNRESERVED | frozenset("!$&'()*+,;=:[]<>\"")
_USER: Final = _UNRESERVED | frozenset("!$&'()*+,;=:%@")
_PATH_SAFE: Final = "$&+,/:;=@-_.~"
_PATH_KEPT: Final = _UNRESERVED | frozenset("!$&'()*+,;=:@[]%/")


@dataclass(frozen=True, slots=True)
class URL:
    """A URL in parts.

    Attributes:
        scheme: In small letters; empty for a bare path.
        user: What stands before the @, normalised; None without one.
        authority: There are two slashes behind the scheme, even if no host follows.
        host: With port, and with brackets around an IPv6 address.
        path: Escaped.
        query: Without the question mark; None when there is not even a question mark.
        opaque: What follows the scheme of a URL without any slash (`mailto:a@b`).
        fragment: Behind the #.
    """

    scheme: str
    user: str | None
    authority: bool
    host: str
    path: str
    query: str | None
    opaque: str
    fragment: str

    cel_type: ClassVar[str] = "kubernetes.URL"
    comparable_to_itself_only: ClassVar[bool] = True

    def hostname(self) -> str:
        """The host without port and brackets."""
        host, _ = self._host_and_port()
        return host[1:-1] if host.startswith("[") and host.endswith("]") else host

    def port(self) -> str:
        """The port, or empty."""
        return self._host_and_port()[1]

    def _host_and_port(self) -> tuple[str, str]:
        host, colon, port = self.host.rpartition(":")
        return (host, port) if colon and _DIGITS.issuperset(port) else (self.host, "")

    def parameters(self) -> dict[str, tuple[str, ...]]:
        """The query's values by key; pairs that are not well formed are left out."""
        found: dict[str, tuple[str, ...]] = {}
        for pair in (self.query or "").split("&"):
            if not pair or ";" in pair:
                continue
            name, _, value = pair.partition("=")
            try:
                name, value = _unescape(name.replace("+", " ")), _unescape(value.replace("+", " "))
            except ValueError:
                continue
            found[name] = (*found.get(name, ()), value)
        return found


def is_url(text: str) -> bool:
    """Whether `parse_url` takes it, were it not for a fragment."""
    try:
        _parse(text, "", request=True)
    except ValueError:
        return False
    return True


def parse_url(text: str) -> URL:
    """The URL that `text` means. Raises `ValueError`."""
    # A fragment has no business in a request target, so it may hold anything; the rest must be fine with and without
    # it.
    _parse(text, "", request=True)
    body, _, fragment = text.partition("#")
    return _parse(body, _unescape(fragment), request=False)


def _parse(text: str, fragment: str, request: bool) -> URL:
    if not text or any(char < " " or char == "\x7f" for char in text):
        raise ValueError(f"{text!r} is no URL")
    if text == "*":
        return URL("", None, False, "", "*", None, "", fragment)
    scheme, rest = _scheme(text)
    rest, mark, query_text = rest.partition("?")
    query = query_text if mark else None
    if not rest.startswith("/"):
        if not scheme:
            raise ValueError(f"{text!r} is no URL: it has neither a scheme nor a leading slash")
        return URL(scheme, None, False, "", "", query, rest, fragment)
    user, host = None, ""
    slashes = rest.startswith("//") and (bool(scheme) or (not request and not rest.startswith("///")))
    if slashes:
        authority, slash, rest = rest[2:].partition("/")
        rest = slash + rest
        user, host = _authority(scheme, authority)
    return URL(scheme, user, slashes, host, _path(rest), query, "", fragment)


def _scheme(text: str) -> tuple[str, str]:
    for position, char in enumerate(text):
        if char == ":":
            if position == 0:
                raise ValueError(f"{text!r} is no URL: the scheme is missing")
            return text[:position].lower(), text[position + 1 :]
        if char not in _LETTERS and (position == 0 or (char not in _DIGITS and char not in "+-.")):
            break
    return "", text


def _authority(scheme: str, authority: str) -> tuple[str | None, str]:
    user, at, host = authority.rpartition("@")
    if not _USER.issuperset(user):
        raise ValueError("bad user information")
    name, colon, password = user.partition(":")
    shown = quote(_unescape(name), safe="$&+,;=") + colon + quote(_unescape(password), safe="$&+,;=")
    return shown if at else None, _host(scheme, host)


def _host(scheme: str, host: str) -> str:
    if host.rfind("[") > 0:
        raise ValueError("a bracket inside the host")
    if host.startswith("["):
        inner, bracket, port = host[1:].rpartition("]")
        if not bracket or not _is_port(port):
            raise ValueError("bad address in brackets")
        address = _unescape_host(inner)
        bare, zone, name = address.partition("%")
        if parse_bracketed(bare) != 6 or (zone and not name):
            raise ValueError("only IPv6 addresses stand in brackets")
        return f"[{address}]{port}"
    colon = host.find(":") if scheme in ("http", "https") else host.rfind(":")
    if colon >= 0 and not _is_port(host[colon:]):
        raise ValueError("bad port")
    return _unescape_host(host)


def parse_bracketed(text: str) -> int:
    """4 or 6 for an address. Raises `ValueError`."""
    if text.lower().startswith("::ffff:"):
        return 6
    return parse_ip(text).family()


def _is_port(text: str) -> bool:
    return not text or (text[0] == ":" and _DIGITS.issuperset(text[1:]))


def _unescape_host(host: str) -> str:
    """In a host only bytes beyond ASCII, and the percent sign, may be escaped."""
    for position, char in enumerate(host):
        if char == "%":
            code = host[position + 1 : position + 3]
            if code[:1] in "01234567" and code != "25":
                raise ValueError("bad escape in the host")
        elif char < "\x80" and char not in _HOST:
            raise ValueError(f"{char!r} in the host")
    return _unescape(host)


def _unescape(text: str) -> str:
    if "%" not in text:
        return text
    first, *rest = text.encode().split(b"%")
    pieces = [first]
    for piece in rest:
        code = piece[:2].decode("latin-1")
        if len(code) < 2 or not _HEX_DIGITS.issuperset(code):
            raise ValueError("bad escape")
        pieces += (bytes((int(code, 16),)), piece[2:])
    return b"".join(pieces).decode("utf-8", "replace")


def _path(path: str) -> str:
    """The path escaped: as written where that is legal, else in the usual way."""
    plain = _unescape(path)
    return path if _PATH_KEPT.issuperset(path) else quote(plain, safe=_PATH_SAFE)
