"""The shape of an invariant of streams."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import ClassVar, NamedTuple, TypeVar

from holdfast.torture.checker.verdict import Violation
from holdfast.torture.streams.checker.history import Share, StreamStory

T = TypeVar("T")


class StreamInvariant:
    """Something that no run of streams may show."""

    code: ClassVar[str]
    name: ClassVar[str]
    forbids: ClassVar[str]

    def __init__(self, story: StreamStory) -> None:
        self.story = story
        self.checked = 0
        """How much was looked at."""
        self.figures: dict[str, float] = {}
        self.offended: Share | None = None
        """The share of the first violation, if it was of one."""

    def check(self) -> Iterator[Violation]:
        """Yield what is wrong."""
        raise NotImplementedError

    def broken(self, what: str, *, share: Share | None = None, at_us: int | None = None) -> Violation:
        """Return a violation of this invariant."""
        if self.offended is None:
            self.offended = share
        where = "" if share is None else f"{named(share)}: "
        return Violation(self.code, where + what, self.story.run.last_us if at_us is None else at_us)


class Fact(NamedTuple):
    """A number that was true at some instant between `sent_us` and `at_us`."""

    sent_us: int
    at_us: int
    number: int


def named(share: Share) -> str:
    """Return a share as people read it."""
    consumer, category, partition = share
    return f"{consumer} of {category}:{partition}"


def sinking(facts: Iterable[Fact]) -> Iterator[tuple[Fact, Fact]]:
    """Yield facts that are smaller than one that was surely true before, each with the greatest of these."""
    kept = list(facts)
    ended = sorted(kept, key=lambda fact: fact.at_us)
    greatest: Fact | None = None
    index = 0
    for fact in sorted(kept, key=lambda fact: fact.sent_us):
        while index < len(ended) and ended[index].at_us < fact.sent_us:
            if greatest is None or ended[index].number > greatest.number:
                greatest = ended[index]
            index += 1
        if greatest is not None and fact.number < greatest.number:
            yield greatest, fact
