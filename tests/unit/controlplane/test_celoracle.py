"""The judge of device selectors, which must answer as its comment says: it is what Adjoin's own evaluator is held
to."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from tests.controlplane import Group, ensure

pytestmark = pytest.mark.skipif(shutil.which("go") is None, reason="go is not in PATH: no judge of device selectors")

GPU = {
    "driver": "gpu.example.com",
    "name": "gpu-0",
    "attributes": {"model": {"string": "H100"}, "numa": {"ints": [0, 1]}, "index": {"int": 3}},
    "capacity": {"memory": {"value": "80Gi"}},
}
NIC = {"driver": "nic.example.com", "name": "nic-0", "allowMultipleAllocations": True, "attributes": {}}


@pytest.fixture(scope="module")
def program() -> Path:
    return ensure(Group.CELORACLE)["celoracle"]


def run(program: Path, text: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([program], input=text, capture_output=True, text=True, timeout=60, check=False)


def ask(program: Path, *questions: dict[str, Any]) -> list[dict[str, Any]]:
    answer = run(program, "".join(map(json.dumps, questions)))
    assert answer.returncode == 0, answer.stderr
    return [json.loads(line) for line in answer.stdout.splitlines()]


@pytest.mark.parametrize(
    ("expression", "matches"),
    [
        pytest.param("device.driver == 'gpu.example.com'", [True, False], id="driver"),
        pytest.param("device.capacity['gpu.example.com'].memory.isInteger()", [True, False], id="capacity"),
        pytest.param("device.allowMultipleAllocations", [False, True], id="consumable capacity is on"),
        pytest.param("device.attributes['gpu.example.com'].numa.includes(1)", [True, False], id="lists are on"),
    ],
)
def test_verdicts_stand_in_the_order_of_the_devices(program: Path, expression: str, matches: list[bool]) -> None:
    [answer] = ask(program, {"expressions": [expression], "devices": [GPU, NIC]})
    [result] = answer["results"]
    assert [verdict["match"] for verdict in result["verdicts"]] == matches
    assert 0 < result["maxCost"] < answer["costLimit"] == 1_000_000


def test_an_evaluation_that_fails_says_why_and_does_not_match(program: Path) -> None:
    [answer] = ask(program, {"expressions": ["device.attributes['gpu.example.com'].model == 'H100'"], "devices": [NIC]})
    [verdict] = answer["results"][0]["verdicts"]
    assert verdict["match"] is False
    assert "no such key: model" in verdict["error"]


def test_what_does_not_compile_says_why_and_has_no_verdicts(program: Path) -> None:
    [answer] = ask(program, {"expressions": ["device.colour == 1", "true"], "devices": [GPU]})
    refused, fine = answer["results"]
    assert "undefined field 'colour'" in refused["compileError"]
    assert "verdicts" not in refused
    assert [verdict["match"] for verdict in fine["verdicts"]] == [True]


def test_one_process_answers_one_question_after_another(program: Path) -> None:
    answers = ask(program, {"expressions": ["true"], "devices": [GPU]}, {"expressions": [], "devices": []})
    assert [len(answer["results"]) for answer in answers] == [1, 0]


@pytest.mark.parametrize(
    ("question", "complaint"),
    [
        pytest.param('{"expresions": []}', 'unknown field "expresions"', id="a misspelt field"),
        pytest.param(
            '{"devices": [{"driver": "d", "colour": 1}]}', 'unknown field "colour"', id="no field of a device"
        ),
        pytest.param('{"environment": "newer"}', '"newer" is neither "stored" nor "new"', id="an unknown environment"),
        pytest.param("{", "unexpected EOF", id="half a question"),
    ],
)
def test_a_question_that_is_not_understood_gets_no_answer(program: Path, question: str, complaint: str) -> None:
    said = run(program, question)
    assert (said.returncode, said.stdout) == (1, "")
    assert complaint in said.stderr
