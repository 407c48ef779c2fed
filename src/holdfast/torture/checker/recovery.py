"""What a dead worker held comes back in time, and one that ends in good order leaves nothing behind (I9)."""

from __future__ import annotations

from collections.abc import Iterator

from holdfast.torture.checker.invariant import Invariant
from holdfast.torture.checker.job import JobHistory
from holdfast.torture.checker.run import Run
from holdfast.torture.checker.verdict import Violation
from holdfast.torture.events import AttemptBegan, Claimed


class Recovery(Invariant):
    """I9.

    The bound counts from the death of the holder, as its parent saw it, and anew from the end of every fault that
    may have kept all workers from the store.
    """

    code = "I9"
    name = "bounded recovery"
    forbids = "a job that stays with a killed worker for longer than the bound, or with one that ended in good order"

    def __init__(self, run: Run) -> None:
        super().__init__(run)
        self._orderly = self._ended_in_good_order()

    def job(self, job: JobHistory) -> Iterator[Violation]:
        """Measure how long a job stayed with a holder that was gone."""
        if job.row is None or (not job.row.attempts and job.row.attempt <= 1):
            return
        for entry in job.entries_of(AttemptBegan):
            began = entry.event
            died_us = self.run.killed_at(entry.process)
            if died_us is not None and isinstance(began, AttemptBegan):
                yield from self._killed(job, began, died_us)
        if self._orderly:
            yield from self._left_behind(job)

    def _killed(self, job: JobHistory, began: AttemptBegan, died_us: int) -> Iterator[Violation]:
        kept = job.kept.get(began.attempt)
        if kept is None or kept.outcome != "lost":
            return
        back = [event.at_us for event in [*job.attempts, *job.of(Claimed)] if event.fence > began.fence]
        taken_us = self.run.from_store_clock(kept.ended_us)
        if taken_us is not None:
            back.append(taken_us)
        if not back:
            return
        took_us = min(back) - died_us
        self.figures["longest recovery (s)"] = max(self.figures.get("longest recovery (s)", 0.0), took_us / 1e6)
        if min(back) > self.run.without_outages(died_us, self.run.settings.recovery_us):
            what = (
                f"attempt {began.attempt} was free {took_us / 1e6:.3f} s after its worker was killed; "
                f"the bound is {self.run.settings.recovery_us / 1e6:g} s"
            )
            yield self.broken(what, job=job, at_us=min(back))

    def _left_behind(self, job: JobHistory) -> Iterator[Violation]:
        for kept in job.row.attempts if job.row is not None else ():
            ended_us = self._orderly.get(kept.worker)
            taken_us = self.run.from_store_clock(kept.ended_us)
            if kept.outcome != "lost" or ended_us is None or taken_us is None or taken_us <= ended_us:
                continue
            since_us = ended_us - self.run.settings.lease_us
            if not any(self.run.was_slow(process, since_us, taken_us) for process in self.run.workers[kept.worker]):
                what = f"attempt {kept.attempt} was left behind by {kept.worker}, which ended in good order"
                yield self.broken(what, job=job, at_us=taken_us)

    def _ended_in_good_order(self) -> dict[str, int]:
        """Return the workers whose processes have all ended by themselves, no outage shortly before; and since when.

        That is when they were asked to end, if they were: from then on a worker finishes, extends or gives back all it
        holds, and nothing of it expires.
        """
        orderly: dict[str, int] = {}
        for worker, processes in self.run.workers.items():
            exits = [self.run.exits.get(process) for process in processes]
            codes = [(exited.code, exited.signal) for exited in exits if exited is not None]
            if len(codes) < len(processes) or any(code != (0, None) for code in codes):
                continue
            ended_us = max(exited.at_us for exited in exits if exited is not None)
            since_us = ended_us - 2 * self.run.settings.lease_us
            if not any(outage.began_us < ended_us and outage.ended_us > since_us for outage in self.run.outages):
                asked = [self.run.asked_to_end[process] for process in processes if process in self.run.asked_to_end]
                orderly[worker] = min([ended_us, *asked])
        return orderly
