"""Positions and generations of a share never decrease (I15)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from itertools import pairwise

from holdfast.torture.checker.verdict import Violation
from holdfast.torture.streams.checker.facts import Share
from holdfast.torture.streams.checker.invariant import Reading, StreamInvariant, decreasing


class Positions(StreamInvariant):
    """I15."""

    code = "I15"
    name = "positions"
    forbids = "a committed position, or a generation, that is smaller than an earlier one"

    def check(self) -> Iterator[Violation]:
        """Compare replies, snapshots and effects."""
        positions: dict[Share, list[Reading]] = defaultdict(list)
        generations: dict[Share, list[Reading]] = defaultdict(list)
        for share, commits in self.facts.commits.items():
            for commit in commits:
                if commit.verdict == "done":
                    positions[share].append(Reading(commit.sent_us, commit.at_us, commit.position))
                    generations[share].append(Reading(commit.sent_us, commit.at_us, commit.generation))
        for snapshot in self.facts.snapshots:
            for seen in snapshot.shares:
                positions[seen.share].append(Reading(snapshot.sent_us, snapshot.at_us, seen.position))
                generations[seen.share].append(Reading(snapshot.sent_us, snapshot.at_us, seen.generation))
        for what, readings in (("position", positions), ("generation", generations)):
            for share, of_share in readings.items():
                self.checked += len(of_share)
                for earlier, later in decreasing(of_share):
                    yield self.broken(f"{what} {later.number} after {earlier.number}", share=share, at_us=later.at_us)
        yield from self._effects()

    def _effects(self) -> Iterator[Violation]:
        for share, effects in self.facts.effects.items():
            for earlier, later in pairwise(effects):
                if later.generation < earlier.generation:
                    yield self.broken(
                        f"an effect under generation {later.generation} was written after one under "
                        f"{earlier.generation} (position {later.position})",
                        share=share,
                    )
