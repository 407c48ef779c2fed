"""One holder at a time (I7), and none that lives is robbed (I23)."""

from __future__ import annotations

from collections.abc import Iterator

from holdfast.torture.checker.invariant import Invariant
from holdfast.torture.checker.job import Entry, JobHistory
from holdfast.torture.checker.run import Run
from holdfast.torture.checker.verdict import Violation
from holdfast.torture.events import (
    AttemptBegan,
    AttemptEnded,
    CancelCalled,
    Claimed,
    EffectCommitted,
    ExtendAnswered,
    Extended,
    Finished,
    Released,
    ResetCalled,
)


class OneHolder(Invariant):
    """I7.

    Whoever sent a claim or an extension at `sent_us`, and was told that it was done, holds the job at least until
    `sent_us` plus the lease: the store began to count later. A claim of the same job that was answered before that is
    a second holder, unless the first had ended, had given the job back, was dead, or a person had taken it.
    """

    code = "I7"
    name = "one holder"
    forbids = "two unexpired leases of one job at the same time"

    def job(self, job: JobHistory) -> Iterator[Violation]:
        """Compare every claim with the leases before it."""
        claims = sorted(_claims(job), key=lambda claim: claim[0])
        if len({fence for fence, _, _ in claims}) < 2:  # noqa: PLR2004 - two holders make a conflict
            return
        holds = _holds(job)
        ended = _given_up_at(job)
        reset = min((reset.at_us for reset in job.of(ResetCalled)), default=None)
        for fence, at_us, _ in claims:
            for other, _, process in claims:
                until = max((until for sent_us, until in holds.get(other, ()) if sent_us < at_us), default=0)
                if other >= fence or until <= at_us or ended.get(other, at_us + 1) <= at_us:
                    continue
                if (reset is None or reset > at_us) and self.run.was_alive(process, at_us):
                    what = (
                        f"fence {fence} was given out while the lease under {other} had "
                        f"{(until - at_us) / 1e6:.3f} s to run and its holder, {process}, lived"
                    )
                    yield self.broken(what, job=job, at_us=at_us)


class NoTheft(Invariant):
    """I23.

    Only with a fault is a lease of a living worker lost: extension goes on while a handler runs, however long. After an
    outage for all, the living have half a lease to extend before anybody may take what has expired meanwhile.
    """

    code = "I23"
    name = "no theft"
    forbids = "a lease that is taken, because it expired, from a worker that lived and met with no fault"

    def __init__(self, run: Run) -> None:
        super().__init__(run)
        self._mercy_us = run.settings.lease_us * 3 // 10  # half a lease, less what the end of an outage was noted late

    def job(self, job: JobHistory) -> Iterator[Violation]:
        """Look at every attempt that the store calls lost."""
        row = job.row
        if row is None or not row.attempts:
            return
        lost = {kept.attempt: kept for kept in row.attempts if kept.outcome == "lost"}
        if not lost:
            return
        for entry in job.entries_of(AttemptBegan):
            began = entry.event
            assert isinstance(began, AttemptBegan)  # noqa: S101 - for the type checker
            kept = lost.get(began.attempt)
            taken_us = None if kept is None else self.run.from_store_clock(kept.ended_us)
            if taken_us is None or not self.run.was_alive(entry.process, taken_us):
                continue
            holder, held_us = _claim_of(job, entry, began)
            since_us = held_us - 2 * self.run.settings.lease_us  # what was claimed before a stop may begin after it
            if self.run.was_disturbed(entry.process, since_us, taken_us):
                continue
            outages = [o for o in self.run.outages if o.began_us < taken_us and o.ended_us > held_us]
            if not outages:
                if self.run.was_slow(holder, since_us, taken_us + self.run.settings.lease_us):
                    continue
                what = f"attempt {began.attempt} was taken from {entry.process}, which lived on undisturbed"
                yield self.broken(what, job=job, at_us=taken_us)
            elif all(o.is_total and taken_us < o.ended_us + self._mercy_us for o in outages):
                what = f"attempt {began.attempt} was taken from {entry.process} as soon as an outage was over"
                yield self.broken(what, job=job, at_us=taken_us)


def _claim_of(job: JobHistory, entry: Entry, began: AttemptBegan) -> tuple[str, int]:
    """Return who claimed what an attempt was for, and when that was asked: long before, if the answer was late."""
    for claim in job.entries_of(Claimed):
        claimed = claim.event
        if isinstance(claimed, Claimed) and claimed.fence == began.fence:
            return claim.process, min(claimed.sent_us, began.at_us)
    return entry.process, began.at_us


def _claims(job: JobHistory) -> Iterator[tuple[int, int, str]]:
    """Yield every claim: its fence, when it had surely been made, and the process that holds the job by it."""
    begun: set[int] = set()
    for entry in job.entries_of(AttemptBegan):
        event = entry.event
        assert isinstance(event, AttemptBegan)  # noqa: S101 - for the type checker
        begun.add(event.fence)
        yield event.fence, event.at_us, entry.process
    for entry in job.entries_of(Claimed):
        event = entry.event
        assert isinstance(event, Claimed)  # noqa: S101 - for the type checker
        if event.fence not in begun:
            yield event.fence, event.at_us, entry.process


def _holds(job: JobHistory) -> dict[int, list[tuple[int, int]]]:
    """Return what the holder of each fence was promised: when it asked, and until when it then holds at least."""
    holds: dict[int, list[tuple[int, int]]] = {}
    for claimed in job.of(Claimed):
        holds.setdefault(claimed.fence, []).append((claimed.sent_us, claimed.sent_us + claimed.lease_us))
    extends: list[Extended | ExtendAnswered] = [*job.of(Extended), *job.of(ExtendAnswered)]
    for extended in extends:
        if extended.verdict == "done":
            holds.setdefault(extended.fence, []).append((extended.sent_us, extended.sent_us + extended.lease_us))
    return holds


def _given_up_at(job: JobHistory) -> dict[int, int]:
    """Return from when on the holder of each fence may have given the job up by itself."""
    ended: dict[int, int] = {}

    def note(fence: int, at_us: int) -> None:
        ended[fence] = min(ended.get(fence, at_us), at_us)

    for attempt in job.of(AttemptEnded):
        note(attempt.fence, attempt.at_us)
    writes: list[Finished | Released | EffectCommitted] = [
        *job.of(Finished),
        *job.of(Released),
        *job.of(EffectCommitted),
    ]
    for write in writes:
        note(write.fence, write.sent_us)
    for cancel in job.of(CancelCalled):  # a prefetched job that is asked to cancel is finished unseen
        for began in job.of(Claimed):
            note(began.fence, cancel.at_us)
    return ended
