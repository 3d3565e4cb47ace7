"""The annotation on a DevicePool by which somebody vouches for devices in quarantine.

In comes its text, out go the devices with the reasons given; and the text for them. Admission refuses a text that
cannot be read, and the operator refuses it again where admission did not see it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Release:
    """A device that somebody vouches for."""

    device: str
    reason: str


def read_releases(text: str) -> tuple[Release, ...]:
    """What the annotation asks for. Raises `ValueError` saying what is wrong with it."""
    try:
        value = json.loads(text)
    except ValueError as error:
        raise ValueError(f"is not JSON ({error})") from None
    if not isinstance(value, list) or not all(isinstance(each, dict) and each.get("device") for each in value):
        raise ValueError('must be a list such as [{"device": "node-a/gpu-0", "reason": "card reseated"}]')
    return tuple(Release(str(each["device"]), str(each.get("reason") or "")) for each in value)


def releases_text(releases: Iterable[Release]) -> str:
    """The annotation's text; `read_releases` reads it back."""
    return json.dumps([{"device": each.device, "reason": each.reason} for each in releases], separators=(",", ":"))
