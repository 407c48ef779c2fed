"""A cache of lane ids by queue and task.

A lane is inserted in a separate transaction, before the jobs. Inside the caller's transaction, the insert would block
every other enqueue to the same new lane until the caller commits. A lane without jobs does no harm, and none is ever
removed.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from functools import partial
from typing import Protocol, TypeVar

from holdfast.backends.sql.steps import Rows
from holdfast.model.job import NewJob
from holdfast.store.steps import Steps, Verb

T = TypeVar("T")
Lane = tuple[str, str]


class SeparateRunner(Protocol):
    """A runner of verbs that commit independently of a handler's transaction."""

    def apart(self, verb: Verb[T]) -> Awaitable[T]:
        """Run a verb in a separate transaction."""
        ...

    def losses(self) -> int:
        """Return the number of broken connections so far."""
        ...


class Lanes:
    """Caches the lanes of this process until a connection breaks.

    The next connection may lead to a promoted standby that lacks the latest lanes and assigns their ids to others.
    A job in a lane that does not exist would never be claimed.
    """

    def __init__(self, runner: SeparateRunner, add: Callable[[Sequence[str], Sequence[str]], Steps[Rows]]) -> None:
        """`add` inserts missing lanes, and returns all of them: lane_id, queue, task."""
        self._runner = runner
        self._add = add
        self._known: dict[Lane, int] = {}
        self._losses = 0

    async def of(self, jobs: Iterable[NewJob]) -> dict[Lane, int]:
        """Return the ids of all lanes that these jobs need; new lanes are inserted."""
        needed = {(job.queue, job.task) for job in jobs}
        self._forget_if_lost()
        while unknown := [lane for lane in needed if lane not in self._known]:
            queues, tasks = [queue for queue, _ in unknown], [task for _, task in unknown]
            # A lane that another process inserts concurrently is not visible to this statement, but to the next one.
            found = await self._runner.apart(partial(self._add, queues, tasks))
            self._forget_if_lost()
            for lane_id, queue, task in found:
                self._known[queue, task] = lane_id
        return self._known

    def _forget_if_lost(self) -> None:
        losses = self._runner.losses()
        if losses != self._losses:
            self._known, self._losses = {}, losses  # not cleared: another task may be about to use the old dict
