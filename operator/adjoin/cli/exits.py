"""Exit statuses of the commands."""

from typing import Final

OK: Final = 0
FAILED: Final = 1
"""A cluster that cannot be read, or a replay that differs."""
BAD_INPUT: Final = 2
PENDING: Final = 3
BROKEN_PIPE: Final = 141
"""As a shell reports a program that SIGPIPE ended."""
