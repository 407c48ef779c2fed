"""The fence of a handler's transaction: a job under its lease, or a share under its grant."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from holdfast.errors import LeaseLost
from holdfast.model.allocation import Grant
from holdfast.model.job import Lease
from holdfast.store.handler_transaction import FenceCheck
from holdfast.store.steps import Steps
from holdfast.store.stream_values import Commit, CommitVerdict
from holdfast.store.values import Verdict


class FencedVerbs(NamedTuple):
    """The verbs at the start and the end of a handler's transaction.

    `lock_job` and `lock_share` lock the row until the end of the transaction and return whether the fence is current;
    they receive the limit in milliseconds. `complete` and `commit` write the completion or the position, fenced.
    """

    lock_job: Callable[[Lease, int], Steps[bool]]
    complete: Callable[[Lease, str | None], Steps[Verdict]]
    lock_share: Callable[[Grant, int], Steps[bool]]
    commit: Callable[[Grant, Commit], Steps[CommitVerdict]]


def fence_of_job(lease: Lease, verbs: FencedVerbs) -> FenceCheck:
    """Return the check of a job under a lease."""

    def check(milliseconds: int) -> Steps[None]:
        if not (yield from verbs.lock_job(lease, milliseconds)):
            message = (
                f"job {lease.job_id} is no longer held under fence {lease.fence}: its lease expired or was taken away, "
                "and another worker may run it. Nothing was written"
            )
            raise LeaseLost(message)

    return FenceCheck(f"job {lease.job_id}", "give the worker a longer lease", check)


def fence_of_share(grant: Grant, verbs: FencedVerbs) -> FenceCheck:
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
