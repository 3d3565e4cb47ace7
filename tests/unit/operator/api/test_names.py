"""Names of child objects stay within what Kubernetes accepts as long as admission's limits hold."""

import re

import pytest

from adjoin.api import names

LABEL_VALUE = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
TOKEN = "a1b2c3d4e5"


@pytest.mark.parametrize(
    ("part", "name"),
    [
        pytest.param(0, f"adjoin-job-a-{TOKEN}", id="the first part carries no number"),
        pytest.param(1, f"adjoin-job-a-{TOKEN}-1", id="the second part carries 1"),
        pytest.param(12, f"adjoin-job-a-{TOKEN}-12", id="two digits"),
    ],
)
def test_name_of_a_resource_claim(part: int, name: str) -> None:
    assert names.resource_claim_name("job-a", TOKEN, part) == name


def test_longest_claim_name_leaves_room_for_its_children() -> None:
    most_parts = names.DEVICES_PER_CLAIM // names.DEVICES_PER_RESOURCE_CLAIM - 1
    longest = names.resource_claim_name("c" * names.CLAIM_NAME_MAX, "t" * names.TOKEN_LENGTH, most_parts)
    assert len(longest) <= 63
    assert LABEL_VALUE.fullmatch(longest)
    assert names.config_map_name("c" * names.CLAIM_NAME_MAX, TOKEN) == names.resource_claim_name("c" * 40, TOKEN)


def test_keys_stand_under_the_group() -> None:
    keys = {
        value for name, value in vars(names).items() if name.startswith(("LABEL_", "ANNOTATION_", "FINALIZER", "GATE"))
    }
    assert keys == {
        "adjoin.dev/cleanup",
        "adjoin.dev/claim",
        "adjoin.dev/pod",
        "adjoin.dev/binding",
        "adjoin.dev/containers",
        "adjoin.dev/replica",
        "adjoin.dev/default-pool",
        "adjoin.dev/schema",
        "adjoin.dev/release-quarantine",
        "adjoin.dev/hook",
        "adjoin.dev/run",
    }
