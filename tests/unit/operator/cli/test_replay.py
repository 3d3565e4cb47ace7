"""`snapshot` and `replay`: the same question gives the same bytes, and what differs is named."""

from __future__ import annotations

import gzip
import json
import stat
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.support import hardware
from tests.support.command import as_text, run, written
from tests.support.livecluster import cluster
from tests.support.objects import deviceclaim, devicepool

from adjoin_allocator.wire_format import decode_record

OBJECTS = [
    devicepool(delivery={"guard": "None"}),
    *hardware.two_roots("n1"),
    deviceclaim("fits", requests={"gpu": 1, "nic": 1}),
    deviceclaim("waits", requests=[{"name": "gpu", "count": 9, "selectors": [{"cel": "device.driver != 'x'"}]}]),
]


@pytest.fixture
def record(tmp_path: Path) -> Path:
    """A file that `snapshot` wrote."""
    path = tmp_path / "record.json"
    ran = run("snapshot", "-f", written(OBJECTS, tmp_path / "objects.yaml"), "-o", str(path))
    assert ran.status == 0
    assert ran.out == ""
    assert ran.err == f"{path}: 2 claims, 1 node, 1 pool at 2026-11-30T08:00:00Z\n"
    return path


def changed(record: Path, change: Any) -> Path:
    value = json.loads(record.read_text())
    change(value)
    record.write_text(json.dumps(value))
    return record


class TestSnapshot:
    def test_it_can_be_read_again(self, record: Path) -> None:
        asked = decode_record(json.loads(record.read_text())).snapshot
        assert [claim.name for claim in asked.claims] == ["fits", "waits"]
        assert [len(devices) for devices in asked.inventory.values()] == [7]

    def test_its_owner_alone_may_read_it(self, record: Path) -> None:
        assert stat.S_IMODE(record.stat().st_mode) == 0o600
        assert [each.name for each in record.parent.iterdir() if each.name.startswith(".")] == []

    def test_the_same_objects_are_the_same_bytes(self, record: Path, tmp_path: Path) -> None:
        assert run("snapshot", "-f", "-", stdin=as_text(OBJECTS)).out == record.read_text()

    def test_it_is_compressed_on_request(self, record: Path, tmp_path: Path) -> None:
        files = [tmp_path / "one.json.gz", tmp_path / "two.json.gz"]
        for file in files:
            assert run("snapshot", "-f", str(tmp_path / "objects.yaml"), "-o", str(file)).status == 0
        assert gzip.decompress(files[0].read_bytes()) == record.read_bytes()
        assert files[0].read_bytes() == files[1].read_bytes()
        assert run("replay", str(files[0])).status == 0

    def test_a_place_that_cannot_be_written(self, tmp_path: Path) -> None:
        ran = run("snapshot", "-f", "-", "-o", str(tmp_path / "absent" / "x.json"), stdin=as_text(OBJECTS))
        assert ran.status == 2
        assert ran.err.startswith("error: ")

    def test_of_a_cluster(self, tmp_path: Path) -> None:
        with cluster(OBJECTS, tmp_path) as (api, path):
            ran = run("snapshot", "--kubeconfig", path, "-o", str(tmp_path / "live.json"))
            assert api.writes == []
        assert ran.status == 0
        assert run("replay", str(tmp_path / "live.json")).status == 0


class TestReplay:
    def test_the_plan_is_the_same(self, record: Path) -> None:
        ran = run("replay", str(record))
        assert (ran.status, ran.err) == (0, "")
        assert ran.out == (
            "planned 2 claims at 2026-11-30T08:00:00Z: 1 replica placed, 1 claim waits\n"
            "the plan is the one in the record, byte for byte\n"
        )

    def test_as_an_object(self, record: Path) -> None:
        shown = run("replay", str(record), "-o", "json").shown
        assert (shown["same"], shown["differences"], shown["placed"], shown["waiting"]) == (True, [], 1, 1)
        assert shown["plan"] == json.loads(record.read_text())["plan"]
        assert yaml.safe_load(run("replay", str(record), "-o", "yaml").out) == shown

    def test_from_the_standard_input(self, record: Path) -> None:
        assert run("replay", "-", stdin=record.read_text()).status == 0

    def test_what_differs_is_named(self, record: Path) -> None:
        def change(value: Any) -> None:
            (uid,) = [uid for uid, each in value["plan"]["claims"].items() if each["placements"]]
            value["plan"]["claims"][uid]["placements"][0]["node"] = "n2"
            value["plan"]["pools"]["training"]["counts"]["gpu"]["free"] = 99

        ran = run("replay", str(changed(record, change)), "-o", "json")
        assert (ran.status, ran.shown["same"]) == (1, False)
        assert [(each["where"], each["recorded"], each["now"]) for each in ran.shown["differences"]] == [
            ("plan.claims.claim-team-fits.placements[0].node", "n2", "n1"),
            ("plan.pools.training.counts.gpu.free", 99, 3),
        ]
        told = run("replay", str(record))
        assert told.status == 1
        assert "  plan.pools.training.counts.gpu.free: 99 → 3\n" in told.out

    def test_another_order_differs_too(self, record: Path) -> None:
        def change(value: Any) -> None:
            value["plan"]["claims"] = dict(reversed(value["plan"]["claims"].items()))

        ran = run("replay", str(changed(record, change)), "-o", "json")
        assert [each["where"] for each in ran.shown["differences"]] == ["plan.claims (order)"]

    def test_a_changed_question_gives_another_answer(self, record: Path) -> None:
        def change(value: Any) -> None:
            value["snapshot"]["nodes"]["n1"]["unschedulable"] = True

        assert run("replay", str(changed(record, change))).status == 1

    def test_at_another_time_nothing_is_compared(self, record: Path) -> None:
        ran = run("replay", str(record), "--now", "2027-01-01T00:00:00Z", "-o", "json")
        assert (ran.status, ran.shown["same"], ran.shown["now"]) == (0, None, "2027-01-01T00:00:00Z")
        assert "holds no plan of that time" in run("replay", str(record), "--now", "2027-01-01T00:00:00Z").out

    def test_a_question_without_an_answer(self, record: Path) -> None:
        ran = run("replay", str(changed(record, lambda value: value.update(plan=None))), "-o", "json")
        assert (ran.status, ran.shown["same"], ran.shown["placed"]) == (0, None, 1)

    @pytest.mark.parametrize(
        ("text", "words"),
        [
            pytest.param("{", "not JSON", id="no JSON"),
            pytest.param("{}", "expected an object with format adjoin.dev/allocator-record", id="another object"),
            pytest.param('{"format": "adjoin.dev/allocator-record", "version": 2}', "2 is not known", id="version"),
            pytest.param("[" * 100_000, "not JSON", id="nested too deeply"),
        ],
    )
    def test_what_is_no_record(self, text: str, words: str, tmp_path: Path) -> None:
        path = tmp_path / "odd.json"
        path.write_text(text)
        ran = run("replay", str(path))
        assert (ran.status, ran.out) == (2, "")
        assert ran.err.startswith(f"error: {path}: ")
        assert words in ran.err

    def test_a_broken_archive(self, tmp_path: Path) -> None:
        path = tmp_path / "odd.json.gz"
        path.write_bytes(gzip.compress(b"{}" * 1000)[:-9])
        assert run("replay", str(path)).status == 2

    def test_a_file_that_is_not_there(self, tmp_path: Path) -> None:
        ran = run("replay", str(tmp_path / "absent"))
        assert (ran.status, ran.err) == (2, f"error: {tmp_path / 'absent'}: No such file or directory\n")
