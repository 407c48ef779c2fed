"""The verbs at the start and the end of a handler's transaction, on SQLite."""

from __future__ import annotations

from functools import partial

from holdfast.backends.sql.steps import run
from holdfast.backends.sql.streams.consumers import commit, granted_share
from holdfast.backends.sqlite.job_rows import SqliteJobRows
from holdfast.model.allocation import Grant
from holdfast.model.job import Lease
from holdfast.store.handler_transaction import FencedVerbs
from holdfast.store.steps import Steps
from holdfast.store.verbs.finish import complete


def _lock_job(lease: Lease, _: int) -> Steps[bool]:
    return (yield from run("lock_lease", seq=lease.seq, fence=lease.fence))


def _lock_share(grant: Grant, _: int) -> Steps[bool]:
    return (yield from granted_share(grant)) is not None


FENCED = FencedVerbs(_lock_job, partial(complete, SqliteJobRows()), _lock_share, commit)
