"""At most one unfinished job per unique key at a time (I27)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from holdfast.torture.checker.holding import may_have_ended_at
from holdfast.torture.checker.invariant import Invariant
from holdfast.torture.checker.job import JobHistory
from holdfast.torture.checker.run import RunFacts
from holdfast.torture.checker.verdict import Violation
from holdfast.torture.events import EnqueueAnswered


class Unfinished(NamedTuple):
    """A job that was certainly enqueued, and certainly had not ended, from one time to another."""

    from_us: int
    until_us: int
    job: str


class OneUnfinished(Invariant):
    """I27.

    A job certainly exists from the first reply that names it: that to its own enqueue, or to one that got it because it
    holds the key. It certainly has not ended before the first of its attempts may have ended it; an attempt whose end
    was not recorded may have done so since its claim was sent. That the job of every reply exists is I1.
    """

    code = "I27"
    name = "unique keys"
    forbids = "two unfinished jobs of one task with one unique key at the same time"

    def __init__(self, run: RunFacts) -> None:
        super().__init__(run)
        self._keys: dict[tuple[str, str], list[Unfinished]] = {}

    def job(self, job: JobHistory) -> Iterator[Violation]:
        """Record when a job with a unique key was unfinished."""
        yield from ()
        call, answered = job.call, job.of(EnqueueAnswered)
        if call is None or not call.unique_key or not answered or not job.claims:
            return
        ended = may_have_ended_at(job)
        until_us = min(ended.get(claim.fence, claim.sent_us) for claim in job.claims)
        self.judged += 1
        if answered[0].at_us < until_us:
            held = Unfinished(answered[0].at_us, until_us, job.id)
            self._keys.setdefault((call.task, call.unique_key), []).append(held)

    def whole_run(self) -> Iterator[Violation]:
        """Compare each job of a key with the earlier one that certainly lasted longest."""
        for (task, key), jobs in self._keys.items():
            jobs.sort()
            last = jobs[0]
            for held in jobs[1:]:
                if held.from_us < last.until_us:
                    what = (
                        f"was enqueued while job {last.job} held its unique key, {task}/{key}, and was unfinished for "
                        f"{(last.until_us - held.from_us) / 1e6:.3f} s more"
                    )
                    yield self.broken(what, job=held.job, at_us=held.from_us)
                if held.until_us > last.until_us:
                    last = held
