"""What a check of the doctor comes to."""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum

import msgspec

_FEW = 5


class FindingLevel(IntEnum):
    """How a check went; the larger, the worse."""

    OK = 0
    WARN = 1
    BAD = 2

    @property
    def word(self) -> str:
        """The verdict as a word."""
        return self.name.lower()


class Finding(msgspec.Struct, frozen=True):
    """What a check found, and what to do about it."""

    check: str
    verdict: FindingLevel
    text: str
    remedy: str | None = None


def fine(check: str, text: str) -> Finding:
    """Return the finding of a check that has nothing to say against the store."""
    return Finding(check, FindingLevel.OK, text)


def some(names: Sequence[str]) -> str:
    """Return the first few of a list of names, and a sign that there are more."""
    return ", ".join(names[:_FEW]) + (" …" if len(names) > _FEW else "")
