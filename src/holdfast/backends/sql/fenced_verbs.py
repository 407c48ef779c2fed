"""The verbs at the start and the end of a handler's transaction."""

from __future__ import annotations

from functools import partial

from holdfast.backends.sql.steps import run
from holdfast.backends.sql.streams.consumers import commit, grant_names
from holdfast.model.allocation import Grant
from holdfast.model.job import Lease
from holdfast.store.handler_transaction import FencedVerbs
from holdfast.store.job_rows import JobRows
from holdfast.store.steps import Steps
from holdfast.store.verbs.finish import complete


def _lock_job(lease: Lease, milliseconds: int) -> Steps[bool]:
    return run("lock_lease", seq=lease.seq, fence=lease.fence, milliseconds=milliseconds)


def _lock_share(grant: Grant, milliseconds: int) -> Steps[bool]:
    return run("lock_share", **grant_names(grant), milliseconds=milliseconds)


def fenced_verbs(rows: JobRows) -> FencedVerbs:
    """Return the verbs; a store that has no use for the milliseconds leaves them out of its statements."""
    return FencedVerbs(_lock_job, partial(complete, rows), _lock_share, commit)
