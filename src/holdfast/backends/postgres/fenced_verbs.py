"""The verbs at the two ends of a handler's transaction, on PostgreSQL."""

from __future__ import annotations

from holdfast.backends.postgres.verbs.consumers import commit, lock_share
from holdfast.backends.postgres.verbs.finish import complete
from holdfast.backends.sql.fences import FencedVerbs
from holdfast.backends.sql.steps import run
from holdfast.model.job import Lease
from holdfast.store.steps import Steps


def _lock_job(lease: Lease, milliseconds: int) -> Steps[bool]:
    return (yield from run("lock_lease", seq=lease.seq, fence=lease.fence, milliseconds=milliseconds))


FENCED = FencedVerbs(_lock_job, complete, lock_share, commit)
