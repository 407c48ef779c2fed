"""The end of a handler's transaction in one statement, which fails if the lease or the grant is stale.

So a COMMIT can be sent together with it, before its result is known.
"""

from __future__ import annotations

from collections.abc import Sequence

import psycopg

from holdfast.backends.sql.steps import Ask
from holdfast.backends.sql.streams.consumers import grant_names, position_step
from holdfast.model.allocation import Grant
from holdfast.model.job import Lease
from holdfast.store.stream_values import Commit


def complete_or_fail(lease: Lease, result: str | None) -> Ask:
    """Return the statement that completes a job that no other job follows."""
    return Ask("complete_or_fail", {"seq": lease.seq, "fence": lease.fence, "result": result})


def complete_all_or_fail(seqs: object, fences: object, results: Sequence[str | None]) -> Ask:
    """Return the statement that completes many locked jobs that no other job follows: all of them, or none.

    `seqs` and `fences` are numbers, or the bound parameters of the statement that has locked them.
    """
    given = list(results) if any(results) else None
    return Ask("complete_all_or_fail", {"seqs": seqs, "fences": fences, "results": given})


def commit_or_fail(grant: Grant, step: Commit) -> Ask:
    """Return the statement that advances only the position."""
    return Ask("commit_position_or_fail", {**grant_names(grant), **position_step(step)})


def is_stale(error: psycopg.Error) -> bool:
    """Return whether such a statement failed because the lease or the grant is stale."""
    return isinstance(error, psycopg.errors.InvalidTextRepresentation) and "holdfast: stale " in str(error)
