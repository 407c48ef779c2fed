"""A dead worker's jobs are freed within a bound, and a worker that shuts down cleanly leaves no lease behind (I9)."""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from typing import Final, NamedTuple

from holdfast.torture.checker.invariant import Invariant
from holdfast.torture.checker.job import ClaimSeen, JobHistory
from holdfast.torture.checker.run import RunFacts
from holdfast.torture.checker.verdict import Violation
from holdfast.torture.events import Claimed, Finished


class Late(NamedTuple):
    """A job of a killed worker that was claimed again late."""

    job: str
    attempt: int
    queue: str
    turn_us: int
    died_us: int
    again_us: int


_STOP: Final = "stop"
_NO_CLAIMS: Final[tuple[array[int], array[int]]] = (array("q"), array("q"))


class Recovery(Invariant):
    """I9.

    The bound counts from the death of the holder, as its parent saw it, and is suspended while all workers may have
    been kept from the store. A job is freed in time if its lease is taken within the bound that the run states: the
    lease plus slack for rescuers on a busy machine. The job then has an early turn but waits for a worker with a free
    slot, so the next claim may come later by the overtaking bound, counted from the last claim of a job with an earlier
    turn: with a backlog, that can be long.
    """

    code = "I9"
    name = "bounded recovery"
    forbids = "a job that stays leased to a killed worker for longer than the bound, or to one that shut down cleanly"

    def __init__(self, run: RunFacts) -> None:
        super().__init__(run)
        self._orderly = self._ended_in_good_order()
        self._late: list[Late] = []
        self._claims: dict[str, tuple[array[int], array[int]]] = {}  # per queue: when, and of which turn
        if run.clock_trouble:
            self.unjudged = f"leases left behind by clean shutdowns: {run.clock_trouble}"

    def job(self, job: JobHistory) -> Iterator[Violation]:
        """Measure how long a job stayed leased to a dead worker."""
        for claimed in job.of(Claimed):
            if claimed.turn_us is not None:
                known = self._claims.get(claimed.queue)
                if known is None:
                    known = self._claims[claimed.queue] = (array("q"), array("q"))
                known[0].append(claimed.at_us)
                known[1].append(claimed.turn_us)
        if job.row is None or (not job.row.attempts and job.row.attempt <= 1):
            return
        for claim in job.claims:
            died_us = self.run.killed_at(claim.process)
            if died_us is not None:
                yield from self._killed(job, claim, died_us)
        if self._orderly:
            yield from self._left_behind(job)

    def _killed(self, job: JobHistory, claim: ClaimSeen, died_us: int) -> Iterator[Violation]:
        kept = job.kept.get(claim.attempt)
        if kept is None or kept.outcome != "lost":
            return
        again_us = min((later.at_us for later in job.claims if later.fence > claim.fence), default=None)
        freed = [at_us for at_us in (again_us, self.run.from_store_clock(kept.ended_us)) if at_us is not None]
        if not freed:
            return
        self.judged += 1
        bound_us = self.run.settings.recovery_us
        took_us = min(freed) - died_us
        self._measure("longest until free (s)", took_us)
        if min(freed) > self.run.without_outages(died_us, bound_us):
            text = (
                f"attempt {claim.attempt} was freed {took_us / 1e6:.3f} s after its worker was killed; "
                f"the bound is {bound_us / 1e6:g} s"
            )
            yield self.broken(text, job=job, at_us=min(freed))
        if again_us is not None:
            self._measure("longest until claimed again (s)", again_us - died_us)
            self._claimed_again(job, claim, died_us, again_us)

    def _measure(self, name: str, took_us: int) -> None:
        self.figures[name] = max(self.figures.get(name, 0.0), took_us / 1e6)

    def _claimed_again(self, job: JobHistory, claim: ClaimSeen, died_us: int, again_us: int) -> None:
        """Keep late claims until all claims before them are known."""
        overtaking_us = self.run.settings.overtaking_us
        bound_us = self.run.settings.recovery_us + overtaking_us
        if not overtaking_us or again_us <= self.run.without_outages(died_us, bound_us):
            return
        place = next(
            ((claimed.queue, claimed.turn_us) for claimed in job.of(Claimed) if claimed.fence == claim.fence), None
        )
        if place is not None and place[1] is not None:
            self._late.append(Late(job.id, claim.attempt, place[0], place[1], died_us, again_us))

    def whole_run(self) -> Iterator[Violation]:
        """For each late claim, check whether jobs of its queue with an earlier turn came first."""
        overtaking_us = self.run.settings.overtaking_us
        for late in self._late:
            claims = zip(*self._claims.get(late.queue, _NO_CLAIMS), strict=True)
            turn_us = max(
                (at_us for at_us, turn_us in claims if turn_us < late.turn_us and at_us < late.again_us), default=0
            )
            since_us = max(turn_us, late.died_us + self.run.settings.recovery_us)
            if late.again_us > self.run.without_outages(since_us, overtaking_us):
                text = (
                    f"attempt {late.attempt} was claimed again {(late.again_us - late.died_us) / 1e6:.3f} s after its "
                    f"worker was killed, and {(late.again_us - since_us) / 1e6:.3f} s after its turn had come; the "
                    f"bound is {overtaking_us / 1e6:g} s"
                )
                yield self.broken(text, job=late.job, at_us=late.again_us)

    def _left_behind(self, job: JobHistory) -> Iterator[Violation]:
        if job.row is None:
            return
        of_a_child = {finished.fence for finished in job.of(Finished) if finished.outcome == "lost"}
        known = {claim.attempt for claim in job.claims if claim.fence not in of_a_child and not claim.direct}
        for kept in job.row.attempts:
            ended_us = self._orderly.get(kept.worker)
            taken_us = self.run.from_store_clock(kept.ended_us)
            if kept.outcome != "lost" or ended_us is None or taken_us is None or taken_us <= ended_us:
                continue
            # Not a job whose claim was never answered: its worker does not know of it and cannot release it. Not one
            # whose child died: its worker was alive to report that. Not one claimed directly: only the caller extends
            # that lease.
            if kept.attempt not in known:
                continue
            self.judged += 1
            since_us = ended_us - self.run.settings.lease_us
            if not any(self._was_held_up(process, since_us, taken_us) for process in self.run.workers[kept.worker]):
                what = f"attempt {kept.attempt} was left behind by {kept.worker}, which shut down cleanly"
                yield self.broken(what, job=job, at_us=taken_us)

    def _was_held_up(self, process: str, since_us: int, until_us: int) -> bool:
        """Return whether a worker could not extend: it was stopped during shutdown, or the store was slow."""
        return self.run.was_disturbed(process, since_us, until_us, by=_STOP) or self.run.was_slow(
            process, since_us, until_us
        )

    def _ended_in_good_order(self) -> dict[str, int]:
        """Return the workers whose processes all exited cleanly without an outage shortly before, and since when.

        The time is when they were asked to shut down, if they were: from then on a worker finishes, extends or releases
        all it holds, and none of its leases expires.
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
                requested = [
                    self.run.asked_to_end[process] for process in processes if process in self.run.asked_to_end
                ]
                orderly[worker] = min([ended_us, *requested])
        return orderly
