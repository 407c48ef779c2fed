"""The base class of a stream invariant."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import ClassVar, NamedTuple

from holdfast.torture.checker.verdict import Violation
from holdfast.torture.streams.checker.facts import Share, StreamFacts


class StreamInvariant:
    """A condition that no stream run may violate."""

    code: ClassVar[str]
    name: ClassVar[str]
    forbids: ClassVar[str]

    def __init__(self, facts: StreamFacts) -> None:
        self.facts = facts
        self.checked = 0
        """The number of checked cases."""
        self.figures: dict[str, float] = {}
        self.offended: Share | None = None
        """The share of the first violation, if it has one."""

    def check(self) -> Iterator[Violation]:
        """Yield the violations."""
        raise NotImplementedError

    def broken(self, what: str, *, share: Share | None = None, at_us: int | None = None) -> Violation:
        """Return a violation of this invariant."""
        if self.offended is None:
            self.offended = share
        where = "" if share is None else f"{named(share)}: "
        return Violation(self.code, where + what, self.facts.run.last_us if at_us is None else at_us)


class Reading(NamedTuple):
    """A number that was current at some time between `sent_us` and `at_us`."""

    sent_us: int
    at_us: int
    number: int


def named(share: Share) -> str:
    """Return a share as text."""
    consumer, category, partition = share
    return f"{consumer} of {category}:{partition}"


def decreasing(readings: Iterable[Reading]) -> Iterator[tuple[Reading, Reading]]:
    """Yield readings that are smaller than one that was certainly current before, each with the greatest of these."""
    kept = list(readings)
    ended = sorted(kept, key=lambda fact: fact.at_us)
    greatest: Reading | None = None
    index = 0
    for fact in sorted(kept, key=lambda fact: fact.sent_us):
        while index < len(ended) and ended[index].at_us < fact.sent_us:
            if greatest is None or ended[index].number > greatest.number:
                greatest = ended[index]
            index += 1
        if greatest is not None and fact.number < greatest.number:
            yield greatest, fact
