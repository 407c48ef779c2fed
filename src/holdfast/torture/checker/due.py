"""No job is claimed before it is due (I13)."""

from __future__ import annotations

from collections.abc import Iterator

from holdfast.torture.checker.invariant import Invariant
from holdfast.torture.checker.job import JobHistory
from holdfast.torture.checker.verdict import Violation
from holdfast.torture.events import AttemptEnded, EnqueueCalled, Finished

_DELAYING = frozenset({"retried", "snoozed"})
_GRAIN_US = 2_000  # stores may round a timestamp to their resolution


class Due(Invariant):
    """I13.

    The store counts a delay from when it receives the call, so at the earliest from when the call was sent: a claim
    before that time plus the delay is early, whatever the store's clock shows. For a retry or snooze that time is when
    the worker sent the outcome; if only the handler's end is recorded, that is the earlier time. In a batch the outcome
    of one job is sent before the handler ends. The delay is the longer of the one that was sent and the one that the
    handler asked for.
    """

    code = "I13"
    name = "due time"
    forbids = "a claim before the job is due: by its delay, its run_at, or the delay of a retry or snooze"

    def job(self, job: JobHistory) -> Iterator[Violation]:
        """Compare each claim with the delays requested before it."""
        if not job.claims:
            return
        yield from self._asked(job)
        if len(job.claims) > 1 and not job.was_sent_back:
            yield from self._again(job)

    def _asked(self, job: JobHistory) -> Iterator[Violation]:
        called = job.of(EnqueueCalled) or ([job.call] if job.call is not None else [])
        if not called:
            return
        self.judged += 1
        first = min(job.claims, key=lambda claim: claim.at_us)
        due_us = min(call.at_us + call.delay_us for call in called)
        run_us = called[0].run_us
        if run_us is not None:
            instant = self.run.from_store_clock(run_us)
            due_us = due_us if instant is None else max(due_us, instant)
        late = first.at_us - due_us
        if late < -_GRAIN_US:
            what = f"attempt {first.attempt} was claimed {-late / 1e6:.3f} s before it was due"
            yield self.broken(what, job=job, at_us=first.at_us)
        elif called[0].delay_us:
            name = "latest claim after a delay (s)"
            self.figures[name] = max(self.figures.get(name, 0.0), late / 1e6)

    def _again(self, job: JobHistory) -> Iterator[Violation]:
        kept = job.kept
        numbers = {claim.fence: claim.attempt for claim in job.claims}
        due: dict[int, tuple[int, int]] = {}  # fence -> when the next attempt may be claimed, and after which delay
        sent: dict[int, int] = {}
        for finished in job.of(Finished):  # the first one that may have arrived: a repeat changes nothing
            row = kept.get(numbers.get(finished.fence, 0))
            is_known = finished.verdict in {"done", "unknown"} and row is not None and row.outcome == finished.outcome
            if is_known and finished.outcome in _DELAYING and finished.fence not in due:
                sent[finished.fence] = finished.sent_us
                due[finished.fence] = (finished.sent_us + finished.delay_us, finished.delay_us)
        for ended in job.of(AttemptEnded):
            row = kept.get(ended.attempt)
            if row is not None and row.outcome in _DELAYING and row.outcome == ended.observed and ended.delay_us:
                due_us = min(ended.at_us, sent.get(ended.fence, ended.at_us)) + ended.delay_us
                due[ended.fence] = max(due.get(ended.fence, (0, 0)), (due_us, ended.delay_us))
        for fence, (due_us, delay_us) in due.items():
            self.judged += 1
            early = [claim for claim in job.claims if claim.fence > fence and claim.at_us < due_us - _GRAIN_US]
            if early:
                what = (
                    f"attempt {early[0].attempt} was claimed {(due_us - early[0].at_us) / 1e6:.3f} s before "
                    f"the delay of {delay_us / 1e6:g} s, after fence {fence}, was over"
                )
                yield self.broken(what, job=job, at_us=early[0].at_us)
