"""`app.tasks`: the registered tasks, and the operations on the jobs of a task in all queues."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING

from holdfast.app.admin import check_limit
from holdfast.app.sync import Blocking, Sync
from holdfast.jobs.task import Tasks
from holdfast.model.limits import Limit, LimitKey, check_limited
from holdfast.model.names import check_name
from holdfast.runtime.unknown_queue import unknown_task
from holdfast.store.values import TaskView

if TYPE_CHECKING:
    from holdfast.app.app import App

_logger = logging.getLogger("holdfast.jobs")


class TasksOfApp(Tasks):
    """`app.tasks`: iterate over the registered tasks; list, pause and resume tasks."""

    def __init__(self, app: App) -> None:
        super().__init__()
        self._app = app

    @property
    def sync(self) -> SyncTasks:
        """The same with blocking calls."""
        return SyncTasks(self, self._app.portal)

    async def list(self, *, most: int | None = None) -> Sequence[TaskView]:
        """List all tasks that have had a job or a pause, with their counts over all queues.

        With `most`, counting stops at about this many jobs of each queue and state, as in `app.queues.list`.
        """
        limit = None if most is None else check_limit(most)
        return await (await self._app.opened(install=False)).insight.tasks(limit)

    async def pause(self, task: str) -> bool:
        """Allow no claims of its jobs, in any queue; False if it was paused already. Warns of an unknown task."""
        backend = await self._app.opened(install=False)
        known = set(self.names)
        if check_name("task", task) not in known:
            known.update(view.name for view in await backend.insight.tasks(1))
        changed = await backend.queues.pause_task(task)
        if task not in known:
            _logger.warning("paused, but %s", unknown_task(task, known))
        return changed

    async def resume(self, task: str) -> bool:
        """Allow claims again; False if it was not paused."""
        return await (await self._app.opened(install=False)).queues.resume_task(check_name("task", task))

    async def limit(self, task: str, limit: Limit | None, *, per_key: bool = False) -> None:
        """Set how many jobs of the task run at once, and at what rate they start, over all queues; None removes it.

        `per_key`: for the jobs of each limit key instead.
        """
        key = LimitKey("key" if per_key else "task", check_name("task", task))
        await (await self._app.opened(install=False)).queues.limit(key, check_limited(limit))


class SyncTasks(Sync[TasksOfApp]):
    """`app.tasks.sync`."""

    list = Blocking(TasksOfApp.list)
    pause = Blocking(TasksOfApp.pause)
    resume = Blocking(TasksOfApp.resume)
    limit = Blocking(TasksOfApp.limit)
