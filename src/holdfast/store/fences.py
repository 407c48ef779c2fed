"""Opens handlers' transactions, each under its fence: a job under its lease, or a share under its grant."""

from __future__ import annotations

from abc import ABC, abstractmethod
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from datetime import timedelta

from holdfast.errors import LeaseLost
from holdfast.model.allocation import Grant
from holdfast.model.job import Lease
from holdfast.store.handler_transaction import FenceCheck, FencedVerbs, OpenTransaction
from holdfast.store.steps import Steps


def _fence_of_job(lease: Lease, verbs: FencedVerbs) -> FenceCheck:
    """Return the check of a job under a lease."""

    def check(milliseconds: int) -> Steps[None]:
        if not (yield from verbs.lock_job(lease, milliseconds)):
            message = (
                f"job {lease.job_id} is no longer held under fence {lease.fence}: its lease expired or was taken away, "
                "and another worker may run it. Nothing was written"
            )
            raise LeaseLost(message)

    return FenceCheck(f"job {lease.job_id}", "give the worker a longer lease", check)


def _fence_of_share(grant: Grant, verbs: FencedVerbs) -> FenceCheck:
    """Return the check of a share under a grant."""
    share = grant.share
    name = f"consumer {share.consumer} on partition {share.partition_id} of {share.category}"

    def check(milliseconds: int) -> Steps[None]:
        if not (yield from verbs.lock_share(grant, milliseconds)):
            message = (
                f"{name}: generation {grant.generation} is stale: the share was taken away, and another node may have "
                "it. Nothing was written"
            )
            raise LeaseLost(message)

    return FenceCheck(name, "give the node's timing a longer self_fence", check)


class HandlerTransactions(ABC):
    """Opens the transactions of handlers of tasks (`begin`) and of consumers (`begin_stream`)."""

    def __init__(self, verbs: FencedVerbs) -> None:
        self._verbs = verbs

    @abstractmethod
    def open(self, fence: FenceCheck, limit: timedelta) -> AbstractAsyncContextManager[OpenTransaction]:
        """Open a transaction for an async handler."""

    @abstractmethod
    def open_blocking(self, fence: FenceCheck, limit: timedelta) -> AbstractContextManager[OpenTransaction]:
        """Open a transaction for a handler that runs in a thread."""

    def begin(self, lease: Lease, *, limit: timedelta) -> AbstractAsyncContextManager[OpenTransaction]:  # noqa: D102
        return self.open(_fence_of_job(lease, self._verbs), limit)

    def begin_blocking(self, lease: Lease, *, limit: timedelta) -> AbstractContextManager[OpenTransaction]:  # noqa: D102
        return self.open_blocking(_fence_of_job(lease, self._verbs), limit)

    def begin_stream(self, grant: Grant, *, limit: timedelta) -> AbstractAsyncContextManager[OpenTransaction]:  # noqa: D102
        return self.open(_fence_of_share(grant, self._verbs), limit)

    def begin_stream_blocking(  # noqa: D102
        self, grant: Grant, *, limit: timedelta
    ) -> AbstractContextManager[OpenTransaction]:
        return self.open_blocking(_fence_of_share(grant, self._verbs), limit)
