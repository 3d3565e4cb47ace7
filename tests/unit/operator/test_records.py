"""Decisions of the running operator in files: on request alone, whole, and no more than a few."""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
from pathlib import Path

import pytest
from tests.support import make
from tests.support.objects import deviceclaim, pod
from tests.support.small import cluster

from adjoin.app import Operator, Recorded, SettingsError, add_arguments, read_settings
from adjoin.decision import Decider
from adjoin.kube import Kube, Login
from adjoin.records import KEPT, Recorder, dumped, read_record
from adjoin_allocator import plan
from adjoin_allocator.wire_format import encode_plan

SNAPSHOT = make.snapshot(make.flat(), [make.claim()])


def test_nothing_is_written_before_there_is_a_decision(tmp_path: Path) -> None:
    assert Recorder(tmp_path).write() is None
    assert list(tmp_path.iterdir()) == []


def test_the_last_decision_is_written_and_can_be_replayed(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path)
    for now in (make.NOW - 1, make.NOW):
        recorder.keep(SNAPSHOT, plan(SNAPSHOT, now), now)
    path = recorder.write()
    assert path is not None
    assert path.name == "adjoin-19700112T134640.000000Z.json.gz"
    record = read_record(path)
    assert record.now == make.NOW
    assert dumped(encode_plan(plan(record.snapshot, record.now))) == dumped(record.plan)


def test_a_few_files_are_kept(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path)
    (tmp_path / "notes.txt").touch()
    for second in range(KEPT + 3):
        recorder.keep(SNAPSHOT, plan(SNAPSHOT, make.NOW), make.NOW + second)
        recorder.write()
    names = sorted(each.name for each in tmp_path.iterdir())
    assert len(names) == KEPT + 1
    assert names[0].startswith("adjoin-19700112T134643")
    assert names[-1] == "notes.txt"


def test_what_the_operator_decided_is_replayed_byte_for_byte(tmp_path: Path) -> None:
    """Decision after decision by one decider, which remembers; each is replayed by one that remembers nothing."""
    world, recorder = cluster(), Recorder(tmp_path)
    decider = Recorded(Decider(), recorder)
    for number in range(6):
        world.add(
            deviceclaim(f"job-{number}", requests={"gpu": 1 + number % 3}), pod(f"w-{number}", claim=f"job-{number}")
        )
        world.settle(lambda: decider)
        path = recorder.write()
        assert path is not None
        record = read_record(path)
        assert dumped(encode_plan(plan(record.snapshot, record.now))) == dumped(record.plan)


def operator(*flags: str) -> Operator:
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    given = parser.parse_args(["--namespace=adjoin-system", "--webhook-service=hook", *flags])
    return Operator(read_settings(given, {}), Kube(Login()))


class TestSignal:
    async def _signalled(self, made: Operator) -> None:
        """SIGUSR1 has come, and what it began has ended."""
        loop = asyncio.get_running_loop()
        made._listen_to_signals()
        try:
            os.kill(os.getpid(), signal.SIGUSR1)
            await asyncio.sleep(0.05)
            if made._recording is not None:
                await made._recording
        finally:
            for number in (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1):
                loop.remove_signal_handler(number)

    async def test_it_writes_the_last_decision(self, tmp_path: Path) -> None:
        made = operator(f"--record-dir={tmp_path}")
        assert made.recorder is not None
        made.recorder.keep(SNAPSHOT, plan(SNAPSHOT, make.NOW), make.NOW)
        await self._signalled(made)
        (name,) = os.listdir(tmp_path)
        assert read_record(tmp_path / name).now == make.NOW

    async def test_without_a_folder_nothing_is_kept_or_written(self, capsys: pytest.CaptureFixture[str]) -> None:
        made = operator()
        await self._signalled(made)
        assert made.recorder is None
        assert "no --record-dir is set" in capsys.readouterr().out

    async def test_a_folder_that_went_away_is_told_and_no_more(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        folder = tmp_path / "records"
        folder.mkdir()
        made = operator(f"--record-dir={folder}")
        assert made.recorder is not None
        made.recorder.keep(SNAPSHOT, plan(SNAPSHOT, make.NOW), make.NOW)
        folder.rmdir()
        await self._signalled(made)
        assert "could not be written" in capsys.readouterr().out

    def test_a_folder_that_is_not_there_is_refused_at_start(self) -> None:
        with pytest.raises(SettingsError, match="--record-dir=/absent: there is no such folder"):
            operator("--record-dir=/absent")
