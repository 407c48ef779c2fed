"""Histories written by hand: a run of one or a few jobs, told record by record."""

from __future__ import annotations

from typing import Any

from holdfast.torture.checker import RunVerdict, check_events
from holdfast.torture.events import (
    AttemptBegan,
    AttemptEnded,
    AttemptRow,
    Claimed,
    Clock,
    Dumped,
    DumpedJob,
    EffectBegan,
    EffectCommitted,
    EffectRow,
    EnqueueAnswered,
    EnqueueCalled,
    Exited,
    FaultBegan,
    FaultEnded,
    Finished,
    HistoryRecord,
    ObservedOutcome,
    ResetAnswered,
    ResetCalled,
    RunBegan,
    Started,
    Takes,
)

SECOND = 1_000_000
A, B = "worker-a-11", "worker-b-12"
BEGIN = 100 * SECOND


class Story:
    """Seconds are told from the begin of the run; the store's clock runs a million seconds ahead of the machine's."""

    AHEAD = 1_000_000 * SECOND

    def __init__(self, *, isolates: bool = False, overtaking: float = 0) -> None:
        self.records: list[tuple[str, HistoryRecord]] = []
        self._rows = 0
        self._effects = 0
        self.add(
            0,
            RunBegan,
            process="conductor-main-1",
            seed=1,
            store="sqlite",
            lease_us=2 * SECOND,
            recovery_us=4 * SECOND,
            isolates=isolates,
            overtaking_us=round(overtaking * SECOND),
        )
        at_us = self.us(0)
        self.add(0, Clock, process="conductor-main-1", sent_us=at_us, store_us=at_us + self.AHEAD)

    @staticmethod
    def us(seconds: float) -> int:
        return BEGIN + round(seconds * SECOND)

    def store_us(self, seconds: float) -> int:
        return self.us(seconds) + self.AHEAD

    def add(self, at: float, kind: type[HistoryRecord], *, process: str = A, **fields: Any) -> Story:
        self.records.append((process, kind(at_us=self.us(at), **fields)))
        return self

    # --- what most stories are made of ------------------------------------------------------------------------------

    def called(self, at: float, *jobs: str, call: str = "c1", **options: Any) -> Story:
        settings: dict[str, Any] = {
            "task": "pay",
            "queue": "default",
            "takes": Takes.TRANSACTION,
            "max_attempts": 3,
            **options,
        }
        return self.add(at, EnqueueCalled, process="producer-a-5", call=call, jobs=jobs, **settings)

    def enqueued(self, at: float, *jobs: str, call: str = "c1", **options: Any) -> Story:
        self.called(at, *jobs, call=call, **options)
        return self.add(at + 0.01, EnqueueAnswered, process="producer-a-5", call=call, jobs=jobs)

    def claimed(
        self,
        at: float,
        job: str,
        *,
        fence: int,
        attempt: int = 1,
        process: str = A,
        lease: float = 2,
        sent: float | None = None,
        queue: str = "default",
        turn: float | None = None,
        direct: bool = False,
    ) -> Story:
        return self.add(
            at,
            Claimed,
            process=process,
            job=job,
            fence=fence,
            attempt=attempt,
            worker=worker_of(process),
            queue=queue,
            task="pay",
            sent_us=self.us(at - 0.01 if sent is None else sent),
            lease_us=round(lease * SECOND),
            turn_us=None if turn is None else self.store_us(turn),
            direct=direct,
        )

    def began(
        self,
        at: float,
        job: str,
        *,
        fence: int,
        attempt: int = 1,
        used: int | None = None,
        process: str = A,
        isolated: bool = False,
    ) -> Story:
        return self.add(
            at,
            AttemptBegan,
            process=process,
            job=job,
            fence=fence,
            attempt=attempt,
            used=attempt if used is None else used,
            worker=worker_of(process),
            queue="default",
            task="pay",
            isolated=isolated,
        )

    def ended(
        self,
        at: float,
        job: str,
        observed: ObservedOutcome,
        *,
        fence: int,
        attempt: int = 1,
        process: str = A,
        delay: float = 0,
    ) -> Story:
        return self.add(
            at,
            AttemptEnded,
            process=process,
            job=job,
            fence=fence,
            attempt=attempt,
            observed=observed,
            delay_us=round(delay * SECOND),
        )

    def finished(
        self, at: float, job: str, outcome: str, *, fence: int, verdict: str = "done", process: str = A
    ) -> Story:
        return self.add(
            at,
            Finished,
            process=process,
            job=job,
            fence=fence,
            outcome=outcome,
            verdict=verdict,
            sent_us=self.us(at - 0.01),
        )

    def committed(self, at: float, job: str, *, fence: int, process: str = A) -> Story:
        self.add(at - 0.02, EffectBegan, process=process, job=job, fence=fence)
        return self.add(at, EffectCommitted, process=process, job=job, fence=fence, sent_us=self.us(at - 0.02))

    def killed(self, at: float, process: str = A) -> Story:
        self.add(at, FaultBegan, process="nemesis-main-2", number=len(self.records), fault="kill", target=process)
        return self.exited(at, process, signal=9)

    def fault(self, begin: float, end: float, fault: str, target: str, **fields: Any) -> Story:
        number = len(self.records)
        self.add(begin, FaultBegan, process="nemesis-main-2", number=number, fault=fault, target=target, **fields)
        return self.add(end, FaultEnded, process="nemesis-main-2", number=number, fault=fault, target=target)

    def exited(self, at: float, process: str = A, *, code: int | None = None, signal: int | None = None) -> Story:
        self.records.append(("conductor-main-1", Exited(at_us=self.us(at), process=process, code=code, signal=signal)))
        return self

    def reset(self, at: float, answered: float | None, job: str = "j1", *, answer: bool | None = True) -> Story:
        """A person takes a job away, and is told so or not."""
        self.add(at, ResetCalled, process="producer-a-5", job=job)
        if answered is not None:
            self.add(answered, ResetAnswered, process="producer-a-5", job=job, answer=answer, sent_us=self.us(at))
        return self

    def alive(self, at: float, process: str = A) -> Story:
        """The process writes something, whatever it is."""
        role, name, pid = process.split("-")
        return self.add(at, Started, process=process, run="r", role=role, name=name, pid=int(pid))

    # --- the final dump ---------------------------------------------------------------------------------------------

    def row(
        self, job: str, state: str, *, attempt: int = 1, attempts: tuple[AttemptRow, ...] = (), **more: Any
    ) -> Story:
        self._rows += 1
        fields: dict[str, Any] = {"max_attempts": 3, "completions": int(state == "completed"), **more}
        return self.add(
            90,
            DumpedJob,
            process="conductor-main-1",
            job=job,
            state=state,
            attempt=attempt,
            attempts=attempts,
            **fields,
        )

    def kept(self, attempt: int, outcome: str, *, at: float = 0, process: str = A) -> AttemptRow:
        """Return how the store remembers an attempt."""
        return AttemptRow(
            attempt=attempt, outcome=outcome, worker=worker_of(process), ended_us=self.store_us(at) if at else 0
        )

    def effect(self, job: str, *, fence: int, attempt: int = 1) -> Story:
        self._effects += 1
        return self.add(91, EffectRow, process="conductor-main-1", job=job, fence=fence, attempt=attempt)

    def checked(self, **left: Any) -> RunVerdict:
        """End the run and check it."""
        self.add(92, Dumped, process="conductor-main-1", rows=self._rows, effects=self._effects, **left)
        return check_events(self.records)


def worker_of(process: str) -> str:
    return process.removeprefix("worker-") + ".w"


def done_well(story: Story | None = None, job: str = "j1") -> Story:
    """A job that is enqueued, runs once and is completed with its effect."""
    story = story or Story()
    story.enqueued(1, job)
    story.claimed(2, job, fence=7).began(2.1, job, fence=7).committed(2.2, job, fence=7)
    story.ended(2.21, job, ObservedOutcome.COMPLETED, fence=7)
    return story.row(job, "completed").effect(job, fence=7)
