"""Exit statuses of the commands."""

from typing import Final

OK: Final = 0
BAD_INPUT: Final = 2
PENDING: Final = 3
BROKEN_PIPE: Final = 141
"""As a shell reports a program that SIGPIPE ended."""
