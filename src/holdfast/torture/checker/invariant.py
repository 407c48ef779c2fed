"""The base class of an invariant."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from holdfast.torture.checker.job import JobHistory
from holdfast.torture.checker.run import RunFacts
from holdfast.torture.checker.verdict import Violation


class Invariant:
    """A condition that no run may violate. One object per check of a run; it may collect data over the jobs.

    `job` is called for every job, in no particular order; `whole_run` once, after all jobs.
    """

    code: ClassVar[str]
    name: ClassVar[str]
    forbids: ClassVar[str]

    def __init__(self, run: RunFacts) -> None:
        self.run = run
        self.figures: dict[str, float] = {}
        """Measurements for the report."""
        self.judged = 0
        """The number of cases that the invariant decided."""
        self.unjudged = ""
        """Why some or all cases could not be decided, or empty."""

    def job(self, job: JobHistory) -> Iterator[Violation]:
        """Yield the violations of one job."""
        raise NotImplementedError

    def whole_run(self) -> Iterator[Violation]:
        """Yield the violations of the run as a whole."""
        yield from ()

    def broken(self, what: str, *, job: JobHistory | str = "", at_us: int | None = None) -> Violation:
        """Return a violation of this invariant by a job, or by a job id if its history is no longer in memory."""
        name = job.id if isinstance(job, JobHistory) else job
        if at_us is None:
            entries = job.entries if isinstance(job, JobHistory) else []
            at_us = entries[-1].event.at_us if entries else self.run.last_us
        return Violation(self.code, what, at_us, name)
