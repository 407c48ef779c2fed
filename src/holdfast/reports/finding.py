"""The result of one check of `holdfast doctor`."""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum

import msgspec

_FEW = 5


class FindingLevel(IntEnum):
    """The severity of a finding; larger is worse."""

    OK = 0
    WARN = 1
    BAD = 2

    @property
    def word(self) -> str:
        """The level as a word."""
        return self.name.lower()


class Finding(msgspec.Struct, frozen=True):
    """The result of a check, and the remedy if there is a problem."""

    check: str
    verdict: FindingLevel
    text: str
    remedy: str | None = None


def fine(check: str, text: str) -> Finding:
    """Return the finding of a check that found no problem."""
    return Finding(check, FindingLevel.OK, text)


def some(names: Sequence[str]) -> str:
    """Return the first few names of a list, with an ellipsis if there are more."""
    return ", ".join(names[:_FEW]) + (" …" if len(names) > _FEW else "")
