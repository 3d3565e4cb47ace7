"""Where the measured data that tests may read lies, if it lies anywhere.

The data (slices and matrices captured on real machines) is kept beside the repository and never inside it. A test that
reads it is marked with `needs_shared`, which names the directory when it skips.
"""

from __future__ import annotations

from pathlib import Path

import pytest

_DIRECTORY = Path(__file__).resolve().parents[2].parent / "shared"

SHARED: Path | None = _DIRECTORY if (_DIRECTORY / "data").is_dir() else None
"""The directory `shared` beside the checkout, or None where there is none."""

needs_shared = pytest.mark.skipif(
    SHARED is None, reason="../shared is absent: no data captured on real machines to read"
)


def shared(relative: str) -> Path:
    """Path of a file under the shared directory; only for tests marked with `needs_shared`."""
    assert SHARED is not None, "mark the test with needs_shared"
    return SHARED / relative
