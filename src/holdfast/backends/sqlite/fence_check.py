"""What a handler holds while its transaction is open, a job or a share of a stream; and how that is checked."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from holdfast.backends.sqlite.connection import Tx
from holdfast.backends.sqlite.verbs.consumers import held
from holdfast.errors import LeaseLost
from holdfast.model.allocation import Grant
from holdfast.model.job import Lease


class SqliteFenceCheck(NamedTuple):
    """`name` says what it is in messages, `limit` what bounds the transaction; `check` raises `LeaseLost`."""

    name: str
    limit: str
    check: Callable[[Tx], None]


def holding_job(lease: Lease) -> SqliteFenceCheck:
    """Return the holding of a job under a lease."""

    def check(tx: Tx) -> None:
        if tx.value("lock_lease", {"seq": lease.seq, "fence": lease.fence}) is None:
            message = (
                f"job {lease.job_id} is no longer held under fence {lease.fence}: its lease expired or was taken away, "
                "and another worker may run it. Nothing was written"
            )
            raise LeaseLost(message)

    return SqliteFenceCheck(f"job {lease.job_id}", "a third of the lease: give the worker a longer one", check)


def holding_share(grant: Grant) -> SqliteFenceCheck:
    """Return the holding of a share under a grant."""
    share = grant.share
    name = f"consumer {share.consumer} on partition {share.partition_id} of {share.category}"

    def check(tx: Tx) -> None:
        if held(tx, grant) is None:
            message = (
                f"{name}: generation {grant.generation} is stale: the share was taken away, and another node may have "
                "it. Nothing was written"
            )
            raise LeaseLost(message)

    return SqliteFenceCheck(
        name, "the self_fence of the node's timing less two beats: give it a longer self_fence", check
    )
