"""The one error of building: `BuildError`."""

from __future__ import annotations


class BuildError(Exception):
    """The programs could not be had; the message says what is missing and what to do."""
