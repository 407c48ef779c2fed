"""The attempt budget: which attempts count, and what happens to a job whose attempt was lost or interrupted.

Every claim increments `attempt`, so a crash that is never reported still costs an attempt. Some attempts are excused
afterwards, because the job was not at fault: a snooze; a job released before its handler started; and, up to
`MAX_INTERRUPTED` times, a job interrupted by a shutdown or lost together with others. The remainder,
`attempt - excused`, counts against `max_attempts`.

**The lost-worker rule.** When a worker dies, all its leases are lost, and the store cannot know which job killed it.

```text
                         lost with other jobs: excused, at most MAX_INTERRUPTED times
                                ┌────┐
                                │    ▼
   in the worker ──lost──▶ isolated, in its own child process ──lost alone, MAX_LOST times──▶ failed ("worker lost")
                                │                    ▲
                                └────────────────────┘
                         lost alone: the attempt counts
```

So the job that kills workers ends as failed, and the jobs that shared a worker with it complete.

"Lost alone" means that an isolated job's own child died: its worker is alive and reports the loss. If the whole worker
is lost, more than the child died, and every other job of that worker is at least as suspect: a job that ran in the
worker's own process, another child that killed its parent, or none of them, as in a power failure. The job then counts
as lost alone only if it was isolated and the worker held no other lease (`was_alone`). A job that kills its worker from
inside a child while the worker holds other leases uses up its excuses, and then its attempts.
"""

from __future__ import annotations

import msgspec

MAX_INTERRUPTED = 10
"""How many interruptions and shared losses of a job are excused; further ones count as attempts."""

MAX_LOST = 3
"""After this many losses a job that was lost alone is failed, regardless of its `max_attempts`."""


class Counters(msgspec.Struct, frozen=True, gc=False):
    """The counters of a job's attempts."""

    attempt: int = 0
    excused: int = 0
    interrupted: int = 0
    lost: int = 0


class BudgetDecision(msgspec.Struct, frozen=True, gc=False):
    """The decision about the job: ready again with these counters, or failed for this reason."""

    counters: Counters
    failed_because: str | None


def was_alone(*, isolated: bool, held: int) -> bool:
    """Return whether a job counts as lost alone when its worker is lost with `held` leases, this one included.

    A rescue may take the worker's leases one by one. With the first it clears `isolated` on the others:
    otherwise the last one would look as if it had been alone.
    """
    return isolated and held == 1


def after_loss(counters: Counters, *, max_attempts: int, alone: bool) -> BudgetDecision:
    """Decide about a job whose worker, or own child process, died or lost contact while it held the job's lease.

    A loss together with other jobs sets `lost` to at least 1, which isolates the job from then on, and never raises it
    further: such a loss does not show which job was at fault.
    """
    if alone:
        blamed = msgspec.structs.replace(counters, lost=counters.lost + 1)
        if blamed.lost >= MAX_LOST:
            return BudgetDecision(blamed, f"worker lost {blamed.lost} times while it ran this job")
        return _unless_used_up(blamed, max_attempts, "worker lost on the last attempt")
    return _interrupted(msgspec.structs.replace(counters, lost=max(counters.lost, 1)), max_attempts, "worker lost")


def after_interruption(counters: Counters, *, max_attempts: int) -> BudgetDecision:
    """Decide about a job whose handler was interrupted by a shutdown."""
    return _interrupted(counters, max_attempts, "interrupted")


def after_return(counters: Counters) -> Counters:
    """Return the counters of a job that was released before its handler started: always excused, without a bound."""
    return msgspec.structs.replace(counters, excused=counters.excused + 1)


def after_retry(counters: Counters) -> Counters:
    """Return the counters of a job that an operator retries: a new budget; a job that was ever lost stays isolated."""
    return Counters(attempt=counters.attempt, excused=counters.attempt, interrupted=0, lost=min(counters.lost, 1))


def _interrupted(counters: Counters, max_attempts: int, what: str) -> BudgetDecision:
    if counters.interrupted < MAX_INTERRUPTED:
        excused = msgspec.structs.replace(counters, excused=counters.excused + 1, interrupted=counters.interrupted + 1)
        return BudgetDecision(excused, None)
    return _unless_used_up(counters, max_attempts, f"{what} too often ({counters.interrupted} times)")


def _unless_used_up(counters: Counters, max_attempts: int, reason: str) -> BudgetDecision:
    used_up = counters.attempt - counters.excused >= max_attempts
    return BudgetDecision(counters, reason if used_up else None)
