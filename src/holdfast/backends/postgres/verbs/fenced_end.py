"""The end of a handler's transaction in one statement, which fails if the lease or the grant is stale.

So a COMMIT can be sent together with it, before its result is known.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import psycopg

from holdfast.backends.sql.steps import Ask, Numbers
from holdfast.backends.sql.streams.consumers import grant_names, position_step
from holdfast.model.allocation import Grant
from holdfast.model.job import Lease
from holdfast.store.stream_values import Commit


def complete_or_fail(lease: Lease, result: str | None) -> Ask:
    """Return the statement that completes a job that no other job follows."""
    return Ask("complete_or_fail", {"seq": lease.seq, "fence": lease.fence, "result": result})


def complete_all_or_fail(
    leases: Sequence[Lease], results: Sequence[str | None], locked: Mapping[str, object] | None
) -> Ask:
    """Return the statement that completes many locked jobs that no other job follows: all of them, or none.

    `locked`: the bound parameters of the statement that has locked these jobs and no others.
    """
    has_results = any(results)
    if locked is not None and not has_results:
        given = locked
    elif not has_results and len({lease.fence for lease in leases}) == 1:
        given = {"seqs": Numbers([lease.seq for lease in leases]), "fence": leases[0].fence}
    else:
        seqs, fences = map(Numbers, zip(*[(lease.seq, lease.fence) for lease in leases], strict=True))
        given = {"seqs": seqs, "fences": fences}
    if "fence" in given:
        return Ask("complete_claimed_or_fail", {"seqs": given["seqs"], "fence": given["fence"]})
    texts = list(results) if has_results else None
    return Ask("complete_all_or_fail", {"seqs": given["seqs"], "fences": given["fences"], "results": texts})


def commit_or_fail(grant: Grant, step: Commit) -> Ask:
    """Return the statement that advances only the position."""
    return Ask("commit_position_or_fail", {**grant_names(grant), **position_step(step)})


def is_stale(error: psycopg.Error) -> bool:
    """Return whether such a statement failed because the lease or the grant is stale."""
    return isinstance(error, psycopg.errors.InvalidTextRepresentation) and "holdfast: stale " in str(error)
