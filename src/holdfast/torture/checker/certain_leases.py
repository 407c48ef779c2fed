"""When a job was certainly leased, for invariants that compare the leases of several jobs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from holdfast.torture.checker.holding import may_have_ended_at, operator_resets, promised_leases
from holdfast.torture.checker.job import ClaimSeen, JobHistory
from holdfast.torture.checker.run import RunFacts


class CertainLease(NamedTuple):
    """A job, certainly leased from one time to another; its claim was made between `sent_us` and `from_us`."""

    from_us: int
    until_us: int
    sent_us: int
    fence: int
    job: str


def certain_leases(run: RunFacts, job: JobHistory) -> Iterator[CertainLease]:
    """Yield the leases of a job whose claim was recorded.

    A lease certainly lasts from the reply to its claim until its promised expiry, or until its holder may have ended it
    or was gone, or an operator reset it.
    """
    ended = may_have_ended_at(job)
    promised = promised_leases(job)
    taken = operator_resets(job)
    for claim in job.claims:
        if claim.is_recorded:
            until_us = max((until for _, until in promised.get(claim.fence, ())), default=claim.at_us)
            away = [asked_us for asked_us, done_us in taken if done_us >= claim.sent_us]
            until_us = min([until_us, ended.get(claim.fence, until_us), *away, _gone_at(run, claim)])
            yield CertainLease(claim.at_us, until_us, claim.sent_us, claim.fence, job.id)


def _gone_at(run: RunFacts, claim: ClaimSeen) -> int:
    """Return from when on the holder may be considered dead, or was shutting down."""
    signs = run.last_sign.get(claim.process, claim.at_us)
    return min(signs, run.asked_to_end.get(claim.process, signs))
