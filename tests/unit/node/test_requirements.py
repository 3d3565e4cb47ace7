"""What a machine lacks for a real node is said in one sentence."""

from __future__ import annotations

import os
import shutil
import sys

import pytest
from tests.node.requirements import missing, refusal

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="nothing else is looked at on another system")


def test_somebody_who_is_not_root_is_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert refusal() == "the tests on a real node need root; this is user 1000 (sudo -E make test-node)"


def test_a_missing_program_is_named_with_its_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(shutil, "which", lambda name: None if name == "ip" else f"/usr/bin/{name}")
    assert "ip (package iproute2)" in missing()
    assert not any("unshare" in each for each in missing())


def test_cgroups_that_may_not_be_written_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    assert any(each.startswith("cgroups") for each in missing())
