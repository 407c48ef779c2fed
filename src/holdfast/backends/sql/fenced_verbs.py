"""The verbs at the start and the end of a handler's transaction."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from holdfast.backends.sql.steps import Numbers, run
from holdfast.backends.sql.steps import rows as rows_of
from holdfast.backends.sql.streams.consumers import commit, grant_names
from holdfast.model.allocation import Grant
from holdfast.model.job import Lease
from holdfast.store.handler_transaction import FencedVerbs
from holdfast.store.job_rows import JobRows, Key
from holdfast.store.steps import Steps
from holdfast.store.verbs.finish import complete, finish


def _lock_job(lease: Lease, milliseconds: int) -> Steps[bool]:
    return run("lock_lease", seq=lease.seq, fence=lease.fence, milliseconds=milliseconds)


def _lock_jobs(leases: Sequence[Lease], milliseconds: int) -> Steps[frozenset[Key]]:
    """Lock the rows of many leases, by seq, as every verb does; return those that are held."""
    ordered = sorted([(lease.seq, lease.fence) for lease in leases])
    seqs, fences = map(Numbers, zip(*ordered, strict=True))
    found = yield from rows_of("lock_batch", seqs=seqs, fences=fences, milliseconds=milliseconds)
    return frozenset(ordered).intersection([row[:2] for row in found])


def _lock_share(grant: Grant, milliseconds: int) -> Steps[bool]:
    return run("lock_share", **grant_names(grant), milliseconds=milliseconds)


def fenced_verbs(rows: JobRows) -> FencedVerbs:
    """Return the verbs; a store that has no use for the milliseconds leaves them out of its statements."""
    return FencedVerbs(_lock_job, _lock_jobs, partial(complete, rows), partial(finish, rows), _lock_share, commit)
