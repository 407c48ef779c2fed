"""The port's lists and counts, for operators."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Protocol

from holdfast.model.job_facts import JobFacts
from holdfast.model.limits import LimitUse
from holdfast.store.job_lists import SeenJob
from holdfast.store.values import (
    Count,
    JobDetails,
    JobFilter,
    JobGraph,
    JobPage,
    LeaseView,
    QueueView,
    TaskView,
    WaitingTask,
    WorkerView,
)


class Insight(Protocol):
    """Read-only lists and counts for operators, cheap at a million rows."""

    async def job(self, job_id: str) -> JobDetails:
        """Return everything that is stored about a job; raises `JobNotFound`."""
        ...

    async def job_facts(self, job_id: str) -> JobFacts:
        """Return what decides whether a job can run, for `model.explanation`; raises `JobNotFound`."""
        ...

    async def find(self, prefix: str, limit: int) -> list[str]:
        """Return at most `limit` ids of jobs that begin with `prefix`; or, for a short id, the only one it names."""
        ...

    async def states(self, job_ids: Sequence[str]) -> list[SeenJob]:
        """Return the states and results of many jobs, in one statement; one that does not exist is left out."""
        ...

    async def parents(self, seq: int) -> list[SeenJob]:
        """Return the states and results of the parents of a job, in the order of its enqueue.

        A parent that was deleted has the state "deleted".
        """
        ...

    async def graph(self, job_id: str, limit: int) -> JobGraph:
        """Return the jobs that are connected with this one by parents, the nearest ones, at most `limit`."""
        ...

    async def jobs(self, selection: JobFilter) -> JobPage:
        """List jobs in one state, one page: waiting ones in the order in which they will run, others newest first."""
        ...

    async def queues(self, most: int | None = None) -> list[QueueView]:
        """List all queues with their counts.

        With `most`, the cost does not depend on the number of jobs: counts stop at about this many jobs of a task and
        state, and `at_least` of a queue names the states of which there may be more.
        """
        ...

    async def tasks(self, most: int | None = None) -> list[TaskView]:
        """List all tasks that have had a job or a pause, with their counts over all queues; `most` as for queues."""
        ...

    async def limits(self) -> list[LimitUse]:
        """List the limits of queues and tasks, with the number of their running jobs."""
        ...

    async def depth(self, queue: str) -> int:
        """Return how many jobs of the queue are ready; 0 if there is no such queue. Reads nothing of other queues."""
        ...

    async def leases(self, limit: int, *, expired_only: bool = False) -> list[LeaseView]:
        """List active leases, the next to expire first."""
        ...

    async def workers(self) -> list[WorkerView]:
        """List the workers that have sent a heartbeat and were not forgotten."""
        ...

    async def waiting_tasks(self) -> list[WaitingTask]:
        """List the tasks that have ready jobs, per queue; costs as much as there are tasks, however many jobs wait."""
        ...

    async def counts(self, since: timedelta, *, by_minute: bool = True) -> list[Count]:
        """Return the counts per minute, queue and task for the last `since`; else one per queue and task."""
        ...

    async def facts(self) -> dict[str, str]:
        """Return what `holdfast doctor` checks: version, durability, sizes, settings; no secrets.

        `now_us` is the store's clock, in microseconds.
        """
        ...
