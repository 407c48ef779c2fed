"""Nothing is claimed from a paused queue (I24)."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator

from holdfast.torture.checker.invariant import Invariant
from holdfast.torture.checker.job import JobHistory
from holdfast.torture.checker.run import Run
from holdfast.torture.checker.verdict import Violation
from holdfast.torture.events import Claimed


class Pauses(Invariant):
    """I24.

    A queue is surely paused from the answer to a pause until somebody next asks to resume it; a resume that was asked
    for before, and may have been done after the pause, leaves no such time. What was claimed before a pause goes on.
    """

    code = "I24"
    name = "pauses"
    forbids = "a claim, sent and answered while a queue was paused, that takes a job of it"

    def __init__(self, run: Run) -> None:
        super().__init__(run)
        self._paused = {queue: _surely_paused(run, queue) for queue in run.pauses}

    def job(self, job: JobHistory) -> Iterator[Violation]:
        """Look at every claim from a queue that was paused at some time."""
        for claimed in job.of(Claimed):
            spans = self._paused.get(claimed.queue)
            if not spans:
                continue
            self.judged += 1
            index = bisect_left(spans, (claimed.sent_us, 0)) - 1
            if index >= 0 and claimed.at_us < spans[index][1]:
                since = (claimed.sent_us - spans[index][0]) / 1e6
                what = f"attempt {claimed.attempt} was claimed from {claimed.queue}, which was paused for {since:.3f} s"
                yield self.broken(what, job=job, at_us=claimed.at_us)


def _surely_paused(run: Run, queue: str) -> list[tuple[int, int]]:
    """Return the times in which a queue was paused whatever the order of calls under way; in order, none in another."""
    asked = run.resumes.get(queue, {})
    found: list[tuple[int, int]] = []
    for sent_us, answered_us in sorted(run.pauses[queue], key=lambda pause: pause[1]):
        until_us = min((at_us for (_, at_us), done_us in asked.items() if done_us >= sent_us), default=run.last_us + 1)
        if answered_us < until_us and not (found and until_us <= found[-1][1]):
            found.append((answered_us, until_us))
    return found
