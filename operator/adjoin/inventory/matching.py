"""Device selectors of pools, compiled.

In come CEL expressions and published devices, out comes whether all hold. A selector that fails on a device does not
match it, as in Kubernetes.
"""

from __future__ import annotations

from collections.abc import Sequence

from adjoin.api.common import CELSelector
from adjoin.facts import PublishedDevice
from adjoin_allocator.cel import CompileError, Selector, compile_selector
from adjoin_allocator.selectors import match_all


class MatcherError(ValueError):
    """A selector does not compile."""


class Matcher:
    """All of some selectors; none at all matches every device."""

    def __init__(self, selectors: Sequence[CELSelector]) -> None:
        compiled: list[Selector] = []
        for selector in selectors:
            try:
                compiled.append(compile_selector(selector.cel))
            except CompileError as error:
                raise MatcherError(f"selector {selector.cel!r}: {error}") from error
        self._selectors = tuple(compiled)

    def __call__(self, device: PublishedDevice) -> bool:
        return not self._selectors or match_all(self._selectors, device).matched
