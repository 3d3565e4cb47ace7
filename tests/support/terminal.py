"""Saying something on the terminal while pytest captures what tests write."""

from __future__ import annotations

import contextlib

import pytest


def uncaptured(config: pytest.Config) -> contextlib.AbstractContextManager[None]:
    """What is written within is seen at once, however pytest captures output."""
    capture = config.pluginmanager.getplugin("capturemanager")
    shown: contextlib.AbstractContextManager[None] = (
        capture.global_and_fixture_disabled() if capture else contextlib.nullcontext()
    )
    return shown
