"""The verbs at the two ends of a handler's transaction, on SQLite."""

from __future__ import annotations

from functools import partial
from typing import Any

from holdfast.backends.sql.fences import FencedVerbs
from holdfast.backends.sql.steps import run
from holdfast.backends.sqlite.execute import Direct
from holdfast.backends.sqlite.job_rows import SqliteJobRows
from holdfast.backends.sqlite.verbs import consumers
from holdfast.model.allocation import Grant
from holdfast.model.job import Lease
from holdfast.store.steps import Steps
from holdfast.store.stream_values import Commit, CommitVerdict
from holdfast.store.verbs.finish import complete


def _lock_job(lease: Lease, _: int) -> Steps[bool]:
    return (yield from run("lock_lease", seq=lease.seq, fence=lease.fence))


def _lock_share(grant: Grant, _: int) -> Steps[bool]:
    held: Any = yield Direct(lambda tx: consumers.held(tx, grant))
    return held is not None


def _commit(grant: Grant, commit: Commit) -> Steps[CommitVerdict]:
    verdict: CommitVerdict = yield Direct(lambda tx: consumers.commit(tx, grant, commit))
    return verdict


FENCED = FencedVerbs(_lock_job, partial(complete, SqliteJobRows()), _lock_share, _commit)
