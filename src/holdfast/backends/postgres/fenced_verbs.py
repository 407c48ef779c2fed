"""The verbs that begin and end a handler's transaction, on PostgreSQL."""

from __future__ import annotations

from functools import partial

from holdfast.backends.postgres.job_rows import PostgresJobRows
from holdfast.backends.postgres.verbs.stream_transaction import lock_share
from holdfast.backends.sql.steps import run
from holdfast.backends.sql.streams.consumers import commit
from holdfast.model.job import Lease
from holdfast.store.handler_transaction import FencedVerbs
from holdfast.store.steps import Steps
from holdfast.store.verbs.finish import complete


def _lock_job(lease: Lease, milliseconds: int) -> Steps[bool]:
    return (yield from run("lock_lease", seq=lease.seq, fence=lease.fence, milliseconds=milliseconds))


FENCED = FencedVerbs(_lock_job, partial(complete, PostgresJobRows()), lock_share, commit)
