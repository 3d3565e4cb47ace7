"""The named formats that Kubernetes checks names and values against (`format.dns1123Label()`).

Comes in: text. Goes out: what is wrong with it, in words; nothing when it is fine. Each complaint stands where
Kubernetes has one; its words are ours.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import date
from typing import ClassVar, Final

from adjoin_allocator.cel.regex import Pattern
from adjoin_allocator.cel.urls import is_url

_LABEL: Final = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_LABEL_PATTERN: Final = Pattern(rf"\A{_LABEL}\z")
_SUBDOMAIN_PATTERN: Final = Pattern(rf"\A{_LABEL}(\.{_LABEL})*\z")
_LABEL_1035_PATTERN: Final = Pattern(r"\A[a-z]([-a-z0-9]*[a-z0-9])?\z")
_KEY: Final = "[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?"
_KEY_PATTERN: Final = Pattern(rf"\A{_KEY}\z")
_QUALIFIED: Final = "letters, digits, '-', '_' and '.', the first and the last of them a letter or digit"
_LABEL_VALUE_PATTERN: Final = Pattern(rf"\A({_KEY})?\z")
_UUID_PATTERN: Final = Pattern(r"(?i)\A[0-9a-f]{8}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{12}\z")
_BASE64_PATTERN: Final = Pattern(r"\A([A-Za-z0-9+/]{4})*([A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=|[A-Za-z0-9+/]{4})\z")
_TIME_PATTERN: Final = Pattern(r"\A([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](.[0-9]+)?(z|[+-][0-9]{2}:[0-9]{2})\z")
_DATE_PATTERN: Final = Pattern(r"\A[0-9]{4}-[0-9]{2}-[0-9]{2}\z")

_LABEL_LENGTH: Final = 63
_SUBDOMAIN_LENGTH: Final = 253

Complaints = Callable[[str], list[str]]


@dataclass(frozen=True, slots=True)
class NamedFormat:
    """A format: its name and what it complains about."""

    name: str
    check: Complaints

    cel_type: ClassVar[str] = "kubernetes.NamedFormat"
    comparable_to_itself_only: ClassVar[bool] = True
    unkeyable: ClassVar[bool] = True


def _label(text: str) -> list[str]:
    complaints = _too_long(text, _LABEL_LENGTH)
    if not _LABEL_PATTERN.matches(text):
        dots = _SUBDOMAIN_PATTERN.matches(text)
        complaints.append("must not contain dots" if dots else "must be a DNS label in small letters")
    return complaints


def _subdomain(text: str) -> list[str]:
    complaints = _too_long(text, _SUBDOMAIN_LENGTH)
    if not _SUBDOMAIN_PATTERN.matches(text):
        complaints.append("must be DNS labels in small letters, joined by dots")
    return complaints


def _label_1035(text: str) -> list[str]:
    complaints = _too_long(text, _LABEL_LENGTH)
    if not _LABEL_1035_PATTERN.matches(text):
        complaints.append("must be a DNS label in small letters that starts with a letter")
    return complaints


def _qualified_name(text: str) -> list[str]:
    parts = text.split("/")
    if len(parts) > 2:
        return ["must be a name with at most one prefix and slash"]
    complaints: list[str] = []
    if len(parts) == 2:
        prefix = [] if parts[0] else ["the prefix must not be empty"]
        complaints += prefix or [f"the prefix {complaint}" for complaint in _subdomain(parts[0])]
    name = parts[-1]
    if not name:
        complaints.append("the name must not be empty")
    complaints += _too_long(name, _LABEL_LENGTH)
    if not _KEY_PATTERN.matches(name):
        complaints.append(f"the name must have {_QUALIFIED}")
    return complaints


def _label_value(text: str) -> list[str]:
    complaints = _too_long(text, _LABEL_LENGTH)
    if not _LABEL_VALUE_PATTERN.matches(text):
        complaints.append(f"must be empty or have {_QUALIFIED}")
    return complaints


def _too_long(text: str, limit: int) -> list[str]:
    return [f"must be no more than {limit} bytes"] if len(text.encode()) > limit else []


def _prefix_of(check: Complaints) -> Complaints:
    """A prefix of a generated name may end in a dash."""

    def prefix(text: str) -> list[str]:
        return check(f"{text[:-2]}a" if len(text) > 1 and text.endswith("-") else text)

    return prefix


def _pattern(pattern: Pattern, complaint: str) -> Complaints:
    return lambda text: [] if pattern.matches(text) else [complaint]


def _date(text: str) -> list[str]:
    try:
        if _DATE_PATTERN.matches(text) and (text.startswith("0000") or date.fromisoformat(text)):
            # Year 0 is a leap year to Go and no year at all to Python.
            if text.startswith("0000"):
                date.fromisoformat(f"2000{text[4:]}")
            return []
    except ValueError:
        pass
    return ["must be a date like 2006-01-02"]


def _datetime(text: str) -> list[str]:
    parts = text.lower().split("t")
    fine = len(text) > 3 and len(parts) > 1 and not _date(parts[0]) and _TIME_PATTERN.matches(parts[1])
    return [] if fine else ["must be a date and time"]


def _uri(text: str) -> list[str]:
    return [] if is_url(text) else ["must be an absolute URI"]


FORMATS: Final = {
    "dns1123Label": NamedFormat("DNS1123Label", _label),
    "dns1123Subdomain": NamedFormat("DNS1123Subdomain", _subdomain),
    "dns1035Label": NamedFormat("DNS1035Label", _label_1035),
    "qualifiedName": NamedFormat("QualifiedName", _qualified_name),
    "dns1123LabelPrefix": NamedFormat("DNS1123LabelPrefix", _prefix_of(_label)),
    "dns1123SubdomainPrefix": NamedFormat("DNS1123SubdomainPrefix", _prefix_of(_subdomain)),
    "dns1035LabelPrefix": NamedFormat("DNS1035LabelPrefix", _prefix_of(_label_1035)),
    "labelValue": NamedFormat("LabelValue", _label_value),
    "uri": NamedFormat("URI", _uri),
    "uuid": NamedFormat("uuid", _pattern(_UUID_PATTERN, "must be a UUID")),
    "byte": NamedFormat("byte", _pattern(_BASE64_PATTERN, "must be base64")),
    "date": NamedFormat("date", _date),
    "datetime": NamedFormat("datetime", _datetime),
}
"""By the name that `format.named()` takes."""
