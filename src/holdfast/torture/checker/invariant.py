"""The shape of an invariant, and the list of those that are checked."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from holdfast.torture.checker.job import JobHistory
from holdfast.torture.checker.run import RunFacts
from holdfast.torture.checker.verdict import Violation


class Invariant:
    """Something that no run may show. One object per check of a run: what it gathers over the jobs is its own.

    `job` is called for every job, in no order of time; `whole` once, after all of them.
    """

    code: ClassVar[str]
    name: ClassVar[str]
    forbids: ClassVar[str]

    def __init__(self, run: RunFacts) -> None:
        self.run = run
        self.figures: dict[str, float] = {}
        """What was measured on the way."""
        self.judged = 0
        """How many cases the invariant applied to and was able to decide."""
        self.unjudged = ""
        """Why some or all cases could not be decided, or nothing."""

    def job(self, job: JobHistory) -> Iterator[Violation]:
        """Yield what is wrong with one job."""
        raise NotImplementedError

    def whole(self) -> Iterator[Violation]:
        """Yield what is wrong with the run as a whole."""
        yield from ()

    def broken(self, what: str, *, job: JobHistory | str = "", at_us: int | None = None) -> Violation:
        """Return a violation of this invariant, of a job or, where that is gone by, of its id."""
        name = job.id if isinstance(job, JobHistory) else job
        if at_us is None:
            told = isinstance(job, JobHistory) and job.entries
            at_us = job.entries[-1].event.at_us if isinstance(job, JobHistory) and told else self.run.last_us
        return Violation(self.code, what, at_us, name)
