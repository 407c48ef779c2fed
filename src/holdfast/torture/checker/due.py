"""Nothing runs before it is due (I13)."""

from __future__ import annotations

from collections.abc import Iterator

from holdfast.torture.checker.invariant import Invariant
from holdfast.torture.checker.job import JobHistory
from holdfast.torture.checker.verdict import Violation
from holdfast.torture.events import AttemptEnded, EnqueueCalled

_DELAYING = frozenset({"retried", "snoozed"})
_GRAIN_US = 2_000  # stores may round an instant to their own grain


class Due(Invariant):
    """I13.

    A delay is counted by the store from when it hears of it, so from the sending of the call at the earliest: what
    begins before that instant plus the delay begins too early, whatever the store's clock shows.
    """

    code = "I13"
    name = "due time"
    forbids = (
        "an attempt that begins before the job is due: by its delay, its run_at, or the delay of a retry or snooze"
    )

    def job(self, job: JobHistory) -> Iterator[Violation]:
        """Compare the begin of each attempt with what was asked for before it."""
        if not job.attempts:
            return
        yield from self._asked(job)
        if len(job.attempts) > 1 and not job.was_sent_back:
            yield from self._again(job)

    def _asked(self, job: JobHistory) -> Iterator[Violation]:
        called = job.of(EnqueueCalled) or ([job.call] if job.call is not None else [])
        if not called:
            return
        first = min(job.attempts, key=lambda began: began.at_us)
        due_us = min(call.at_us + call.delay_us for call in called)
        run_us = called[0].run_us
        if run_us is not None:
            instant = self.run.from_store_clock(run_us)
            due_us = due_us if instant is None else max(due_us, instant)
        late = first.at_us - due_us
        if late < -_GRAIN_US:
            what = f"attempt {first.attempt} began {-late / 1e6:.3f} s before it was due"
            yield self.broken(what, job=job, at_us=first.at_us)
        elif called[0].delay_us:
            self.figures["latest begin after a delay (s)"] = max(
                self.figures.get("latest begin after a delay (s)", 0.0), late / 1e6
            )

    def _again(self, job: JobHistory) -> Iterator[Violation]:
        kept = job.kept
        for ended in job.of(AttemptEnded):
            row = kept.get(ended.attempt)
            if row is None or row.outcome not in _DELAYING or row.outcome != ended.believed or not ended.delay_us:
                continue
            due_us = ended.at_us + ended.delay_us
            early = [b for b in job.attempts if b.fence > ended.fence and b.at_us < due_us - _GRAIN_US]
            if early:
                what = (
                    f"attempt {early[0].attempt} began {(due_us - early[0].at_us) / 1e6:.3f} s before "
                    f"the delay of {ended.delay_us / 1e6:g} s, asked for by attempt {ended.attempt}, was over"
                )
                yield self.broken(what, job=job, at_us=early[0].at_us)
