"""Positions and generations of a share never decrease (I15)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from itertools import pairwise

from holdfast.torture.checker.verdict import Violation
from holdfast.torture.streams.checker.history import Share
from holdfast.torture.streams.checker.invariant import Fact, StreamInvariant, sinking


class Positions(StreamInvariant):
    """I15."""

    code = "I15"
    name = "positions"
    forbids = "a committed position, or a generation, that is smaller than an earlier one"

    def check(self) -> Iterator[Violation]:
        """Compare replies, snapshots and effects."""
        positions: dict[Share, list[Fact]] = defaultdict(list)
        generations: dict[Share, list[Fact]] = defaultdict(list)
        for share, commits in self.story.commits.items():
            for commit in commits:
                if commit.verdict == "done":
                    positions[share].append(Fact(commit.sent_us, commit.at_us, commit.position))
                    generations[share].append(Fact(commit.sent_us, commit.at_us, commit.generation))
        for look in self.story.looks:
            for seen in look.shares:
                positions[seen.share].append(Fact(look.sent_us, look.at_us, seen.position))
                generations[seen.share].append(Fact(look.sent_us, look.at_us, seen.generation))
        for what, facts in (("position", positions), ("generation", generations)):
            for share, told in facts.items():
                self.checked += len(told)
                for earlier, later in sinking(told):
                    yield self.broken(f"{what} {later.number} after {earlier.number}", share=share, at_us=later.at_us)
        yield from self._effects()

    def _effects(self) -> Iterator[Violation]:
        for share, effects in self.story.effects.items():
            for earlier, later in pairwise(effects):
                if later.generation < earlier.generation:
                    yield self.broken(
                        f"an effect under generation {later.generation} was written after one under "
                        f"{earlier.generation} (position {later.position})",
                        share=share,
                    )
