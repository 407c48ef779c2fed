"""A job that waits for others starts after their ends, and only if none of them failed (I28)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from holdfast.torture.checker.holding import may_have_ended_at
from holdfast.torture.checker.invariant import Invariant
from holdfast.torture.checker.job import JobHistory
from holdfast.torture.checker.run import RunFacts
from holdfast.torture.checker.verdict import Violation
from holdfast.torture.names import IN_GRAPHS

_BROKEN = frozenset({"failed", "cancelled"})
_ENDED = frozenset({"completed", *_BROKEN})


class GraphMember(NamedTuple):
    """A job of a graph. It was claimed by `claimed_us`, and certainly had not ended before `ends_us`; None: unknown."""

    state: str
    claimed_us: int | None
    ends_us: int | None
    after: tuple[str, ...]
    run_anyway: bool


class AfterParents(Invariant):
    """I28.

    The parents of a job come from its enqueue call. A job ends under its last claim, and not before the holder sent the
    end or, if that was not recorded, before the claim was sent. No work cancels jobs of graphs.
    """

    code = "I28"
    name = "parents"
    forbids = (
        "a job that is claimed before its parents have ended or although one of them failed; that is cancelled without "
        "that reason; or that stays blocked although all have ended"
    )

    def __init__(self, run: RunFacts) -> None:
        super().__init__(run)
        self._members: dict[str, GraphMember] = {}

    def job(self, job: JobHistory) -> Iterator[Violation]:
        """Record a job of a graph."""
        yield from ()
        if job.call is None or job.call.task not in IN_GRAPHS:
            return
        last = job.claims[-1] if job.claims else None
        self._members[job.id] = GraphMember(
            state="" if job.row is None else job.row.state,
            claimed_us=min((claim.at_us for claim in job.claims), default=None),
            ends_us=None if last is None else may_have_ended_at(job).get(last.fence, last.sent_us),
            after=job.call.after,
            run_anyway=job.call.run_anyway,
        )

    def whole_run(self) -> Iterator[Violation]:
        """Compare each job with its parents."""
        for job, member in self._members.items():
            if not member.after or not (member.state or member.claimed_us):
                continue
            self.judged += 1
            parents = {parent: self._members[parent] for parent in member.after if parent in self._members}
            if member.claimed_us is not None:
                yield from self._claimed(job, member, member.claimed_us, parents)
            states = [parent.state for parent in parents.values()]
            if member.state == "cancelled" and (member.run_anyway or all(state == "completed" for state in states)):
                how = "it runs in any case" if member.run_anyway else "all jobs that it waited for are completed"
                yield self.broken(f"was cancelled, although {how}", job=job)
            if member.state == "blocked" and all(state in _ENDED for state in states):
                yield self.broken("is still blocked, although all jobs that it waited for have ended", job=job)

    def _claimed(
        self, job: str, member: GraphMember, claimed_us: int, parents: dict[str, GraphMember]
    ) -> Iterator[Violation]:
        for name, parent in parents.items():
            if parent.ends_us is not None and claimed_us < parent.ends_us:
                early = (parent.ends_us - claimed_us) / 1e6
                what = f"was claimed at least {early:.3f} s before the end of job {name}, for which it waited"
                yield self.broken(what, job=job, at_us=claimed_us)
            if parent.state in _BROKEN and not member.run_anyway:
                what = f"was claimed, although job {name}, for which it waited, is {parent.state}"
                yield self.broken(what, job=job, at_us=claimed_us)
