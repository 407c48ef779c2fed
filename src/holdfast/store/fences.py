"""Opens handlers' transactions, each under its fence: a job under its lease, or a share under its grant."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from datetime import timedelta
from functools import partial

from holdfast.model.allocation import Grant
from holdfast.model.isolation import READ_COMMITTED, Isolation
from holdfast.model.job import Lease
from holdfast.store.handler_transaction import FenceCheck, FencedVerbs, OpenTransaction


class HandlersTransactions(ABC):
    """Opens the transactions of handlers: of a task under a lease, of a consumer under a grant."""

    def __init__(self, verbs: FencedVerbs) -> None:
        self._verbs = verbs

    @abstractmethod
    def open(
        self, fence: FenceCheck, limit: timedelta, isolation: Isolation
    ) -> AbstractAsyncContextManager[OpenTransaction]:
        """Open a transaction for an async handler."""

    @abstractmethod
    def open_blocking(
        self, fence: FenceCheck, limit: timedelta, isolation: Isolation
    ) -> AbstractContextManager[OpenTransaction]:
        """Open a transaction for a handler that runs in a thread."""

    def begin(
        self, held: Lease | Grant, *, limit: timedelta, isolation: Isolation = READ_COMMITTED
    ) -> AbstractAsyncContextManager[OpenTransaction]:
        """Open a transaction for an async handler."""
        return self.open(_fence(held, self._verbs), limit, isolation)

    def begin_blocking(
        self, held: Lease | Grant, *, limit: timedelta, isolation: Isolation = READ_COMMITTED
    ) -> AbstractContextManager[OpenTransaction]:
        """Open a transaction for a handler that runs in a thread."""
        return self.open_blocking(_fence(held, self._verbs), limit, isolation)

    def begin_many(
        self, leases: Sequence[Lease], *, limit: timedelta, isolation: Isolation = READ_COMMITTED
    ) -> AbstractAsyncContextManager[OpenTransaction]:
        """Open a transaction over many jobs for an async handler."""
        return self.open(_fence_of_many(leases, self._verbs), limit, isolation)

    def begin_many_blocking(
        self, leases: Sequence[Lease], *, limit: timedelta, isolation: Isolation = READ_COMMITTED
    ) -> AbstractContextManager[OpenTransaction]:
        """Open a transaction over many jobs for a handler that runs in a thread."""
        return self.open_blocking(_fence_of_many(leases, self._verbs), limit, isolation)


def _fence_of_many(leases: Sequence[Lease], verbs: FencedVerbs) -> FenceCheck:
    name = f"a batch of {len(leases)} jobs, the first {leases[0].job_id}"
    loss = f"none of the {len(leases)} jobs of a batch is leased any more: their leases expired or were taken away"
    return FenceCheck(name, "give the worker a longer lease", loss, partial(verbs.lock_jobs, leases), leases)


def _fence(held: Lease | Grant, verbs: FencedVerbs) -> FenceCheck:
    if isinstance(held, Lease):
        name = f"job {held.job_id}"
        loss = (
            f"{name} is no longer held under fence {held.fence}: its lease expired or was taken away, and another "
            "worker may run it"
        )
        return FenceCheck(name, "give the worker a longer lease", loss, partial(verbs.lock_job, held), [held])
    share = held.share
    name = f"consumer {share.consumer} on partition {share.partition_id} of {share.category}"
    loss = f"{name}: generation {held.generation} is stale: the share was taken away, and another node may have it"
    return FenceCheck(name, "give the node's timing a longer self_fence", loss, partial(verbs.lock_share, held))
