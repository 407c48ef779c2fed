"""No job is claimed from a paused queue (I24)."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from typing import NamedTuple

from holdfast.torture.checker.invariant import Invariant
from holdfast.torture.checker.job import JobHistory
from holdfast.torture.checker.run import RunFacts
from holdfast.torture.checker.verdict import Violation
from holdfast.torture.events import Claimed


class Span(NamedTuple):
    """A time in which a queue was certainly paused, and by which process."""

    from_us: int
    to_us: int
    by: str


class Pauses(Invariant):
    """I24.

    A queue is certainly paused from the reply to a pause until the next resume is sent. A resume that was sent earlier,
    and may have taken effect after the pause, leaves no such time; one without a reply may take effect within the
    recovery bound. Jobs claimed before a pause continue.
    """

    code = "I24"
    name = "pauses"
    forbids = "a claim, sent and answered while a queue was paused, that takes a job from it"

    def __init__(self, run: RunFacts) -> None:
        super().__init__(run)
        self._paused = {queue: _surely_paused(run, queue) for queue in run.pauses}
        sent = sum(map(len, run.pauses.values()))
        self.judged = sum(map(len, self._paused.values()))
        if self.judged < sent:
            self.unjudged = f"{sent - self.judged} of {sent} pauses: paused or resumed concurrently"

    def job(self, job: JobHistory) -> Iterator[Violation]:
        """Check every claim from a queue that was paused at some time."""
        for claimed in job.of(Claimed):
            spans = self._paused.get(claimed.queue)
            if not spans:
                continue
            index = bisect_left(spans, (claimed.sent_us,)) - 1
            if index >= 0 and claimed.at_us < spans[index].to_us:
                span = spans[index]
                what = (
                    f"attempt {claimed.attempt} was claimed from {claimed.queue} by a claim that was sent "
                    f"{(claimed.sent_us - span.from_us) / 1e6:.3f} s after the queue was paused by {span.by}, and "
                    f"answered {(span.to_us - claimed.at_us) / 1e6:.3f} s before a resume was sent"
                )
                yield self.broken(what, job=job, at_us=claimed.at_us)


def _surely_paused(run: RunFacts, queue: str) -> list[Span]:
    """Return the times in which a queue was paused under any order of concurrent calls; sorted and disjoint."""
    resumes = run.resumes.get(queue, {})
    found: list[Span] = []
    for sent_us, answered_us, process in sorted(run.pauses[queue], key=lambda pause: pause[1]):
        until_us = min(
            (at_us for (_, at_us), done_us in resumes.items() if done_us >= sent_us), default=run.last_us + 1
        )
        if answered_us < until_us and not (found and until_us <= found[-1].to_us):
            found.append(Span(answered_us, until_us, process))
    return found
