"""Random objects: the API server's rules and `validate` give the same verdict."""

from collections import Counter
from random import Random

import pytest
from tests.cluster.test_crds import Server, server
from tests.support.api_fuzz import fuzzed

from adjoin.api.errors import ErrorKind
from adjoin.api.validate import validate

__all__ = ["server"]

SEED = 20261130
OBJECTS = 400
KINDS = ("DeviceClaim", "DevicePool", "DeviceShare")


@pytest.mark.parametrize("kind", KINDS)
def test_server_and_validate_agree(server: Server, kind: str) -> None:
    source = Random(f"{SEED} {kind}")
    verdicts: Counter[bool] = Counter()
    for _ in range(OBJECTS):
        obj = fuzzed(source, kind, source.choice([0.0, 0.01, 0.03]))
        said = server.refusal(obj, "?dryRun=All&fieldValidation=Strict")
        errors = [str(error) for error in validate(obj) if error.kind is not ErrorKind.UNSUPPORTED]
        assert bool(errors) == (said is not None), f"{obj}\nserver: {said}\nvalidate: {errors}"
        verdicts[said is None] += 1
    # The generator reaches both sides.
    assert min(verdicts[True], verdicts[False]) >= OBJECTS // 20, verdicts
