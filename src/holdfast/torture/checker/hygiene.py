"""Nothing is left over after the drain (I21)."""

from __future__ import annotations

from collections.abc import Iterator

from holdfast.torture.checker.exits import left_over
from holdfast.torture.checker.invariant import Invariant
from holdfast.torture.checker.job import JobHistory
from holdfast.torture.checker.verdict import Violation


class Hygiene(Invariant):
    """I21."""

    code = "I21"
    name = "hygiene"
    forbids = (
        "a lease, transaction, connection or process that outlives the run, a damaged store, a run without an end, a "
        "process that crashes or ends of an error that it did not expect"
    )

    def job(self, job: JobHistory) -> Iterator[Violation]:
        """After the drain no job is leased."""
        self.judged += len(job.rows)
        if job.row is not None and job.row.state == "running":
            yield self.broken(f"is still leased to {job.row.worker or 'a worker'} after the drain", job=job)

    def whole_run(self) -> Iterator[Violation]:
        """Check the leftovers in the final dump."""
        for what, at_us in left_over(self.run.exits, self.run.dumped, owned="leases", when="after the drain"):
            yield self.broken(what, at_us=at_us)
