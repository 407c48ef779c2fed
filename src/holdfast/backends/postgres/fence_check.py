"""What a handler holds while its transaction is open, a job or a share of a stream; and how that is locked."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from holdfast.backends.postgres.verbs.consumers import hold
from holdfast.backends.sql.steps import run
from holdfast.errors import LeaseLost
from holdfast.model.allocation import Grant
from holdfast.model.job import Lease
from holdfast.store.steps import Steps


class PostgresFenceCheck(NamedTuple):
    """`name` says what it is in messages, `remedy` how the limit is made longer; `lock` raises `LeaseLost`.

    `lock` is given the limit in milliseconds.
    """

    name: str
    remedy: str
    lock: Callable[[int], Steps[None]]


def holding_job(lease: Lease) -> PostgresFenceCheck:
    """Return the holding of a job under a lease."""

    def lock(milliseconds: int) -> Steps[None]:
        if not (yield from run("lock_lease", seq=lease.seq, fence=lease.fence, milliseconds=milliseconds)):
            message = (
                f"job {lease.job_id} is no longer held under fence {lease.fence}: its lease expired or was taken "
                "away, and another worker may run it. Nothing was written"
            )
            raise LeaseLost(message)

    return PostgresFenceCheck(f"job {lease.job_id}", "give the worker a longer lease", lock)


def holding_share(grant: Grant) -> PostgresFenceCheck:
    """Return the holding of a share under a grant."""
    share = grant.share
    name = f"consumer {share.consumer} on partition {share.partition_id} of {share.category}"
    remedy = "give the node's timing a longer self_fence"
    return PostgresFenceCheck(name, remedy, partial(hold, grant))
