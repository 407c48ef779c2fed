"""The blocking face of an app, where it is more than its async methods called from ordinary code."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, NoReturn, Self
from uuid import UUID

from holdfast.app.batch import Batch, open_batch_blocking
from holdfast.app.sync import Sync
from holdfast.app.sync_types import SyncJob
from holdfast.errors import ConfigError

if TYPE_CHECKING:
    from holdfast.app.app import App
    from holdfast.app.claimed_job import ClaimedJob


class AppSync(Sync[Any]):
    """`app.sync`."""

    _target: App

    def __enter__(self) -> Self:
        """Open the store."""
        self.opened()
        return self

    def __exit__(self, *_: object) -> None:
        """Close it, as `close` does."""
        self.close()

    def close(self) -> None:
        """Close the connections of this process and end the thread of its blocking calls; the next call begins anew.

        Waits for calls that were broken off, as by Ctrl-C. Raises `ConfigError`, and closes nothing, if they do not end
        or others are under way, as in other threads.
        """
        self._portal.settle()
        self._portal.call(self._target.close())
        self._portal.close()

    def job(self, job_id: str | UUID) -> SyncJob:
        """Return the blocking handle of a job by its id."""
        return self._target.job(job_id).sync

    def batch(self, jobs: Sequence[ClaimedJob]) -> AbstractContextManager[Batch]:
        """Open one transaction over claimed jobs, as `App.batch` does; `batch.connection` is a blocking one."""
        return open_batch_blocking(self._target, jobs)

    def worker(self, **_: object) -> NoReturn:
        """Refuse: a worker has a loop of its own."""
        raise ConfigError(
            "a worker runs in async code: run it as a program with app.run_worker(…), or a queue until "
            "nothing is ready with app.sync.drain(queue)"
        )

    def node(self, **_: object) -> NoReturn:
        """Refuse: a node has a loop of its own."""
        raise ConfigError("a node runs in async code: run the consumers as a program with app.run_worker(…)")
