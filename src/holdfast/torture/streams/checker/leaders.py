"""Epochs grow, and only the leader with the greatest epoch writes (I18)."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from holdfast.torture.checker.verdict import Violation
from holdfast.torture.streams.checker.invariant import Reading, StreamInvariant, decreasing


class Leaders(StreamInvariant):
    """I18."""

    code = "I18"
    name = "leadership"
    forbids = "an epoch with two leaders or that shrinks, a leader's write under an epoch that is not the greatest"

    def check(self) -> Iterator[Violation]:
        """Compare epochs in replies to leaders, in their writes, and in snapshots."""
        known = self.facts
        holders: dict[int, tuple[str, str]] = {}
        for led in sorted(known.led, key=lambda led: led.at_us):
            self.checked += 1
            holder = holders.setdefault(led.epoch, (led.node, led.incarnation))
            if holder != (led.node, led.incarnation):
                yield self.broken(f"{holder[0]} and {led.node} both led under epoch {led.epoch}", at_us=led.at_us)
        epochs = [
            *(Reading(led.sent_us, led.at_us, led.epoch) for led in known.led),
            *(Reading(write.sent_us, write.at_us, write.epoch) for write in known.writes),
            *(Reading(snapshot.sent_us, snapshot.at_us, snapshot.epoch) for snapshot in known.snapshots),
        ]
        for greater, epoch in decreasing(epochs):
            yield self.broken(
                f"epoch {epoch.number} was led, written or seen after {greater.number} was known", at_us=epoch.at_us
            )
        yield from self._steps()

    def _steps(self) -> Iterator[Violation]:
        steps = [step for step in self.facts.transitions if step.epoch]
        self.checked += len(steps)
        for earlier, later in pairwise(steps):
            if later.epoch < earlier.epoch:
                yield self.broken(
                    f"epoch {later.epoch} has written after {earlier.epoch} (transitions {earlier.number}, "
                    f"{later.number})",
                    share=later.share,
                    at_us=later.at_us,
                )
