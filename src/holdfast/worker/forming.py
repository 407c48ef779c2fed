"""Batches that are being collected: jobs of one task, until the batch is full or its first job has waited `linger`.

A job that must not share a batch is not collected: it waits with the jobs of other tasks and runs as a batch of one.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from holdfast.jobs.call import may_share
from holdfast.model.job import LeasedJob

_NEVER = float("inf")


class BatchSize(NamedTuple):
    """The largest number of jobs in a batch of a task, and how long one that is not full waits for more, in seconds."""

    most: int
    linger: float


class _FormingBatch:
    """The jobs of one task that wait for their batch, the first since `since`."""

    __slots__ = ("jobs", "since", "size")

    def __init__(self, size: BatchSize) -> None:
        self.size = size
        self.jobs: deque[LeasedJob] = deque()
        self.since = _NEVER

    def due_at(self) -> float:
        if not self.jobs:
            return _NEVER
        return self.since if len(self.jobs) >= self.size.most else self.since + self.size.linger


class Forming:
    """The jobs that wait for their batches, by task."""

    def __init__(self, sizes: Mapping[str, BatchSize]) -> None:
        self.sizes = sizes
        self._groups = {task: _FormingBatch(size) for task, size in sizes.items()}
        self._per_slot = 1.0  # jobs that one slot takes, as in the last claim
        self._passed = True  # whether the last batch that was due left its slot to another job

    def __len__(self) -> int:
        return sum(len(group.jobs) for group in self._groups.values())

    @property
    def head(self) -> LeasedJob | None:
        """The job that has waited longest."""
        waiting = [group for group in self._groups.values() if group.jobs]
        return min(waiting, key=lambda group: group.since).jobs[0] if waiting else None

    def add(self, jobs: Sequence[LeasedJob], now: float) -> list[LeasedJob]:
        """Collect the jobs that run in batches; return the others."""
        others: list[LeasedJob] = []
        groups = self._groups
        sizes = [len(group.jobs) for group in groups.values()]
        for job in jobs:
            group = groups.get(job.task)
            if group is not None and may_share(job):
                group.jobs.append(job)
            else:
                others.append(job)
        slots = float(len(others))
        for group, size in zip(groups.values(), sizes, strict=True):
            if len(group.jobs) > size:
                slots += (len(group.jobs) - size) / group.size.most
                group.since = now if size == 0 else group.since
        if jobs:
            self._per_slot = len(jobs) / slots
        return others

    def room(self, free: int) -> int:
        """Return how many jobs so many free slots take, if the next claim is like the last one."""
        return int(free * self._per_slot)

    def due_at(self) -> float:
        """Return when the next batch is due."""
        return min((group.due_at() for group in self._groups.values()), default=_NEVER)

    def take(self, now: float, *, others_wait: bool) -> list[LeasedJob]:
        """Return the jobs of a batch that is due, none if there is no such batch.

        While jobs of other tasks wait for a slot, too, every other call leaves the slot to them.
        """
        due = [group for group in self._groups.values() if group.due_at() <= now]
        if not due:
            return []
        self._passed = others_wait and not self._passed
        if self._passed:
            return []
        group = min(due, key=lambda group: group.since)
        taken = [group.jobs.popleft() for _ in range(min(len(group.jobs), group.size.most))]
        group.since = now  # of the rest: they wait for a batch from now on
        return taken

    def keep(self, is_kept: Callable[[LeasedJob], bool]) -> None:
        """Remove the jobs that are no longer to begin."""
        for group in self._groups.values():
            group.jobs = deque(job for job in group.jobs if is_kept(job))

    def clear(self) -> Iterable[LeasedJob]:
        """Remove and return all jobs."""
        jobs = [job for group in self._groups.values() for job in group.jobs]
        for group in self._groups.values():
            group.jobs.clear()
        return jobs
