"""Which attempts count, and what becomes of a job that was lost or interrupted.

Every claim raises `attempt`: a crash that never reports still costs one. Some ends are then excused, because the job
was not at fault: a snooze, a job given back before it began, and, within a bound, one that was interrupted by a
shutdown or lost together with others. What is left, `attempt - excused`, is held against `max_attempts`.

**The lost-worker rule.** A worker that dies takes all jobs that it held with it, and nobody knows which one killed it.

```text
   lost beside others ──▶ excused, but from now on it runs isolated, in a child process of its own
   lost alone         ──▶ its own fault: the attempt counts, and after MAX_LOST losses the job is failed
```

So the guilty job ends as failed ("worker lost") and the innocent ones run through.

Alone is an isolated job whose own child died: its worker lives, and says so. When the whole worker is lost, it was not
just the child that died, and whatever else the worker held is at least as suspect: a fresh job in the worker's own
process, another child that killed its parent, or nothing of the kind: somebody pulled the plug. So it is then alone
only if it was isolated and the worker held nothing else (`was_alone`). A job that takes its worker down from inside a
child, always beside others, runs out of excuses, and then of attempts.
"""

from __future__ import annotations

import msgspec

MAX_INTERRUPTED = 10
MAX_LOST = 3


class Counters(msgspec.Struct, frozen=True, gc=False):
    """What is counted of a job's attempts."""

    attempt: int = 0
    excused: int = 0
    interrupted: int = 0
    lost: int = 0


class BudgetDecision(msgspec.Struct, frozen=True, gc=False):
    """What becomes of the job: ready again with these counters, or failed for this reason."""

    counters: Counters
    failed_because: str | None


def was_alone(*, isolated: bool, held: int) -> bool:
    """Tell whether a job was alone when its worker was lost with `held` jobs, this one included.

    The worker's leases may be taken one by one. What is left of them when the first are taken is not isolated any more:
    else the last one would seem to have been alone.
    """
    return isolated and held == 1


def after_loss(counters: Counters, *, max_attempts: int, alone: bool) -> BudgetDecision:
    """Decide what becomes of a job whose worker, or own child process, died or fell silent while it held the job.

    Beside others `lost` is raised but once: it says that the job is to be isolated, and not whose fault that was.
    """
    if alone:
        blamed = msgspec.structs.replace(counters, lost=counters.lost + 1)
        if blamed.lost >= MAX_LOST:
            return BudgetDecision(blamed, f"worker lost {blamed.lost} times while it ran this job")
        return _unless_used_up(blamed, max_attempts, "worker lost on the last attempt")
    return _interrupted(msgspec.structs.replace(counters, lost=max(counters.lost, 1)), max_attempts, "worker lost")


def after_interruption(counters: Counters, *, max_attempts: int) -> BudgetDecision:
    """Decide what becomes of a job that a shutdown broke off in the middle."""
    return _interrupted(counters, max_attempts, "interrupted")


def after_return(counters: Counters) -> Counters:
    """Return the counters of a job that was given back before its handler began: no bound, it did nothing."""
    return msgspec.structs.replace(counters, excused=counters.excused + 1)


def after_retry(counters: Counters) -> Counters:
    """Return the counters of a job that a person sends back: a fresh budget, but one that was ever lost stays alone."""
    return Counters(attempt=counters.attempt, excused=counters.attempt, interrupted=0, lost=min(counters.lost, 1))


def _interrupted(counters: Counters, max_attempts: int, what: str) -> BudgetDecision:
    if counters.interrupted < MAX_INTERRUPTED:
        excused = msgspec.structs.replace(counters, excused=counters.excused + 1, interrupted=counters.interrupted + 1)
        return BudgetDecision(excused, None)
    return _unless_used_up(counters, max_attempts, f"{what} too often ({counters.interrupted} times)")


def _unless_used_up(counters: Counters, max_attempts: int, reason: str) -> BudgetDecision:
    used_up = counters.attempt - counters.excused >= max_attempts
    return BudgetDecision(counters, reason if used_up else None)
