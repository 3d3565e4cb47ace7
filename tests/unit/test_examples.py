"""Every example runs offline through `plan`, exactly as its README says.

In a README a block of `sh` with `kubectl adjoin …` is run from the root of the repository; a block of `text` right
after it is what it prints, and "Exit status: N" after that is how it ends when that is not 0. So it is with the README
of the repository.
"""

from __future__ import annotations

import json
import re
import shlex
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml
from tests.support import machines
from tests.support.command import run

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = sorted(path.parent for path in (ROOT / "examples").glob("*/README.md"))
COMMAND = "kubectl adjoin "
BLOCKS = re.compile(
    r"```sh\n(?P<commands>.*?)```\n\s*```text\n(?P<output>.*?)```(?:\n\s*Exit status: (?P<status>\d))?", re.DOTALL
)


@dataclass(frozen=True)
class Block:
    """A command of a README with what it prints."""

    example: Path
    command: str
    output: str
    status: int


def blocks(example: Path) -> list[Block]:
    """The plans that a README shows."""
    return [
        Block(example, found["commands"].strip(), found["output"], int(found["status"] or 0))
        for found in BLOCKS.finditer((example / "README.md").read_text())
        if found["commands"].startswith(COMMAND)
    ]


SHOWN = [block for example in (*EXAMPLES, ROOT) for block in blocks(example)]


def test_there_is_an_example_for_every_scenario() -> None:
    assert {example.name for example in EXAMPLES} >= {
        "quickstart",
        "gpu-only",
        "statefulset",
        "indexed-job",
        "preferred-locality",
        "p5-8gpu-32nic",
        "static-pool",
        "topology-matrix",
        "hooks",
        "environment",
        "time-sliced-notebooks",
        "fractional-memory",
        "mps",
        "mig-inference",
        "virtual-functions",
        "mixed-pool",
    }


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.name)
def test_every_example_shows_a_plan(example: Path) -> None:
    assert blocks(example)


@pytest.mark.parametrize("block", SHOWN, ids=lambda block: f"{block.example.name}: {block.command}")
def test_the_readme_says_what_the_plan_prints(block: Block, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    ran = run(*shlex.split(block.command.removeprefix(COMMAND)))
    assert ran.out == block.output
    assert ran.status == block.status


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.name)
def test_an_example_speaks_of_nothing_that_it_does_not_have(example: Path) -> None:
    """Every file that its README names is there."""
    text = (example / "README.md").read_text()
    for name in re.findall(r"`([\w./-]+\.yaml|machines/)`", text):
        assert (example / name).exists(), name


@pytest.mark.parametrize("scenario", sorted(machines.MACHINES))
def test_machines_are_those_of_the_models(scenario: str) -> None:
    """`python -m tests.support.machines` writes them anew."""
    assert machines.path(scenario).read_text() == machines.text(scenario)
    assert list(yaml.safe_load_all(machines.path(scenario).read_text())) == machines.MACHINES[scenario]


def test_the_matrix_is_that_of_the_model() -> None:
    assert (ROOT / "examples" / "topology-matrix" / "matrix.yaml").read_text() == machines.matrix()


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.name)
def test_what_a_plan_says_does_not_depend_on_which_claim_was_made_first(example: Path, tmp_path: Path) -> None:
    """Claims that are applied together are equally old, and then their UIDs decide: where it matters who is served
    first, priorities say so."""
    objects = [obj for file in sorted(example.glob("*.yaml")) for obj in yaml.safe_load_all(file.read_text()) if obj]
    claims = [obj for obj in objects if obj["kind"] == "DeviceClaim"]
    others = [obj for obj in objects if obj["kind"] != "DeviceClaim"]
    found = []
    for given in (claims, claims[::-1]):
        file = tmp_path / "objects.yaml"
        file.write_text(yaml.safe_dump_all([*others, *given]))
        more = ["-f", str(example / "machines")] if (example / "machines").is_dir() else []
        ran = run("plan", "-f", str(file), *more, "-o", "json")
        found.append(
            {
                claim["name"]: (
                    sorted((len(r["devices"]), sorted(r["locality"].items())) for r in claim["replicas"]),
                    sorted(reason["code"] for reason in claim["reasons"]),
                )
                for claim in json.loads(ran.out)["claims"]
            }
        )
    assert found[0] == found[1]
