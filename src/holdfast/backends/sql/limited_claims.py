"""The end of a claim under limits."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from holdfast.backends.sql.steps import run
from holdfast.model.instants import MICROSECOND
from holdfast.model.limits import LimitUse, Shares, concerned_by, next_wait, taken_by
from holdfast.store.steps import Steps
from holdfast.store.values import Claim

_CONTENDED = 5_000  # microseconds, until another session has committed what it holds under the same limit


def settle(claim: Claim, uses: Sequence[LimitUse], shares: Shares) -> Steps[Claim]:
    """Use the rates of the claimed jobs; return the claim with what the limits refuse, and for how long.

    A limit that has room, and refused nevertheless, is locked by another session, or its jobs are. A claim that is
    repeated at once would find the same until that session commits, and only burden the store.
    """
    taken = taken_by(((job.queue, job.task) for job in claim.jobs), uses)
    for use in uses:
        if use.rate_jobs is not None and use.kind != "key" and taken[use.key]:
            statement = "spend_queue" if use.kind == "queue" else "spend_task"
            yield from run(statement, name=use.name, rate_at=use.rate_after(taken[use.key]))
    wait = next_wait(uses, taken, shares.refused)
    if wait == 0 and not claim.is_cut:
        wait = _CONTENDED
    return msgspec.structs.replace(
        claim,
        is_limited=bool(shares.refused) or shares.is_held_back,
        wait=None if wait is None else wait * MICROSECOND,
        limited=concerned_by(claim.jobs, uses),
    )
