"""The states of a job, and of those around it, in which operations are run together."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

from tests.interleavings.operations import (
    APP,
    JOB,
    LEASE,
    QUEUE,
    RETRIED,
    SCHEDULE,
    SECOND,
    TASK,
    THIRD,
    Instant,
    Leases,
    a_child,
    a_job,
    a_schedule,
    limited,
    request,
    unique,
)

from holdfast.model.job import Lease
from holdfast.model.limits import Limit, LimitKey
from holdfast.model.outcome import Cancelled, Completed, Failed, Failure, Outcome
from holdfast.store.jobs import JobStore
from holdfast.store.schedules import ScheduleStore
from holdfast.store.values import Finish


async def _take(jobs: JobStore, worker_id: str) -> Lease:
    (job,) = (await jobs.claim(request(worker_id, 1))).jobs
    return job.lease


async def _absent(jobs: JobStore, clock: Instant) -> Leases:
    return {}


async def _ready(jobs: JobStore, clock: Instant) -> Leases:
    """Its first holder fell silent, was taken for dead, and still thinks that it holds the job."""
    await jobs.enqueue([a_job()])
    zombie = await _take(jobs, "zombie")
    clock.advance(LEASE * 2)
    await jobs.rescue(None, 10)
    return {"zombie": zombie}


async def _running(jobs: JobStore, clock: Instant) -> Leases:
    """Its second holder has let the lease run out; its first one is stale."""
    leases = await _ready(jobs, clock)
    leases["holder"] = await _take(jobs, "holder")
    clock.advance(LEASE * 2)
    return leases


async def _asked(jobs: JobStore, clock: Instant) -> Leases:
    leases = await _running(jobs, clock)
    await jobs.cancel(JOB, "unwanted")
    return leases


async def _due(jobs: JobStore, clock: Instant) -> Leases:
    leases = await _running(jobs, clock)
    await jobs.finish([Finish(leases["holder"], RETRIED)])
    clock.advance(timedelta(minutes=1))
    return leases


def _ended(outcome: Outcome) -> Callable[[JobStore, Instant], Awaitable[Leases]]:
    async def end(jobs: JobStore, clock: Instant) -> Leases:
        leases = await _running(jobs, clock)
        await jobs.finish([Finish(leases["holder"], outcome)])
        clock.advance(timedelta(days=10))
        return leases

    return end


async def _two(jobs: JobStore, clock: Instant) -> Leases:
    """Two such jobs."""
    leases = await _running(jobs, clock)
    await jobs.enqueue([a_job(SECOND)])
    leases["other zombie"] = await _take(jobs, "zombie")
    clock.advance(LEASE * 2)
    await jobs.extend(leases["holder"], LEASE)
    await jobs.rescue(None, 10)
    leases["other"] = await _take(jobs, "holder")
    clock.advance(LEASE * 2)
    return leases


async def _line(jobs: JobStore, clock: Instant, *, max_attempts: int = 5, waiting: int = 1) -> Leases:
    """As `running`, but the job has a key, and another waits for its end."""
    await jobs.enqueue([a_job(JOB, "x", max_attempts=max_attempts), *[a_job(SECOND, "x")] * waiting])
    leases = {"zombie": await _take(jobs, "zombie")}
    clock.advance(LEASE * 2)
    await jobs.rescue(None, 10)
    leases["holder"] = await _take(jobs, "holder")
    clock.advance(LEASE * 2)
    return leases


async def _line_alone(jobs: JobStore, clock: Instant) -> Leases:
    return await _line(jobs, clock, waiting=0)


async def _line_at_last(jobs: JobStore, clock: Instant) -> Leases:
    """Lost once more, the head is failed."""
    return await _line(jobs, clock, max_attempts=1)


async def _line_ready(jobs: JobStore, clock: Instant) -> Leases:
    leases = await _line(jobs, clock)
    await jobs.release([leases["holder"]], started=False)
    return leases


async def _line_failed(jobs: JobStore, clock: Instant) -> Leases:
    """The first is failed, the second is the head."""
    leases = await _line(jobs, clock)
    await jobs.finish([Finish(leases["holder"], Failed(Failure("ValueError", "no")))])
    clock.advance(timedelta(days=10))
    return leases


async def _lines(jobs: JobStore, clock: Instant) -> Leases:
    """Two heads, x and y, are held; one waits behind x."""
    leases = await _line(jobs, clock)
    await jobs.enqueue([a_job(THIRD, "y")])
    leases["other"] = await _take(jobs, "holder")
    clock.advance(LEASE * 2)
    return leases


async def _family(jobs: JobStore, clock: Instant) -> Leases:
    """Both parents of the third job are held; the first of them in a line, if it is to be."""
    await jobs.enqueue([a_job(JOB), a_job(SECOND), a_child(THIRD, JOB, SECOND)])
    leases = {"holder": await _take(jobs, "holder"), "other": await _take(jobs, "holder")}
    clock.advance(LEASE * 2)
    return leases


async def _family_ended(jobs: JobStore, clock: Instant) -> Leases:
    """Both have ended, but nobody has told the third yet."""
    leases = await _family(jobs, clock)
    await jobs.finish([Finish(leases[holder], Completed("1")) for holder in ("holder", "other")])
    return leases


async def _family_failed(jobs: JobStore, clock: Instant) -> Leases:
    """The first has failed; the second runs. The third was cancelled for it."""
    leases = await _family(jobs, clock)
    await jobs.finish([Finish(leases["holder"], Failed(Failure("ValueError", "no")))])
    await jobs.promote(10)
    clock.advance(timedelta(days=10))
    return leases


async def _family_with_key(jobs: JobStore, clock: Instant) -> Leases:
    """The parent has failed. Its child, the third, was cancelled for it, and had a unique key."""
    await jobs.enqueue([a_job(JOB), a_child(THIRD, JOB, key="u")])
    leases = {"holder": await _take(jobs, "holder")}
    await jobs.finish([Finish(leases["holder"], Failed(Failure("ValueError", "no")))])
    await jobs.promote(10)
    clock.advance(timedelta(days=10))
    return leases


async def _family_with_key_retried(jobs: JobStore, clock: Instant) -> Leases:
    """The parent was retried, but nobody has told the child yet."""
    leases = await _family_with_key(jobs, clock)
    await jobs.retry(JOB)
    return leases


async def _family_in_line(jobs: JobStore, clock: Instant) -> Leases:
    """The head of a line is the parent of the third; the second is behind it."""
    leases = await _line(jobs, clock)
    await jobs.enqueue([a_child(THIRD, JOB)])
    return leases


def _unique(scope: str, until: str, **options: Any) -> Callable[[JobStore, Instant], Awaitable[Leases]]:
    """A job with a unique key, brought into a state."""

    async def set_up(jobs: JobStore, clock: Instant) -> Leases:
        await jobs.enqueue([unique(JOB, scope, **options)])
        if until == "ready":
            return {}
        leases = {"holder": await _take(jobs, "holder")}
        clock.advance(LEASE * 2)
        if until == "due":
            await jobs.finish([Finish(leases["holder"], RETRIED)])
            clock.advance(timedelta(minutes=1))
        if until == "failed":
            await jobs.finish([Finish(leases["holder"], Failed(Failure("ValueError", "no")))])
            clock.advance(timedelta(days=10))
        return leases

    return set_up


async def _limited(jobs: JobStore, clock: Instant) -> Leases:
    """Two are ready, and one may run."""
    leases = await _ready(jobs, clock)
    await jobs.enqueue([a_job(SECOND)])
    return leases


async def _limited_full(jobs: JobStore, clock: Instant) -> Leases:
    """One runs, under a lease that has expired, and holds the only slot; another is ready."""
    leases = await _running(jobs, clock)
    await jobs.enqueue([a_job(SECOND)])
    return leases


async def _schedule_due(jobs: JobStore, clock: Instant) -> Leases:
    """Two of its times have passed."""
    clock.advance(timedelta(minutes=11))
    return {}


async def set_up_schedules(state: str, schedules: ScheduleStore) -> None:
    """Define the schedule that a state has, before its time begins."""
    if state in {"schedule due", "schedule paused"}:
        await schedules.put(SCHEDULE, a_schedule())
    if state == "schedule paused":
        await schedules.pause(SCHEDULE)
    if state == "schedule declared":
        await schedules.declare(APP, {SCHEDULE: a_schedule()}, overrules=None)


async def _limit_key(jobs: JobStore, clock: Instant) -> Leases:
    """As `running`, but the job has a limit key and its only slot, for which another waits."""
    await jobs.enqueue([limited(JOB), limited(SECOND)])
    leases = {"zombie": await _take(jobs, "zombie")}
    clock.advance(LEASE * 2)
    await jobs.rescue(None, 10)
    leases["holder"] = await _take(jobs, "holder")
    clock.advance(LEASE * 2)
    return leases


async def _limit_key_due(jobs: JobStore, clock: Instant) -> Leases:
    """The first is retried and due; the second has the slot and runs."""
    leases = await _limit_key(jobs, clock)
    await jobs.finish([Finish(leases["holder"], RETRIED)])
    leases["other"] = await _take(jobs, "holder")
    clock.advance(timedelta(minutes=1))
    return leases


_QUEUE, _KEYS = LimitKey("queue", QUEUE), LimitKey("key", TASK)
LIMITED = (_QUEUE, _KEYS)
LIMITS = {
    "limited": {_QUEUE: Limit(running=1)},
    "limited full": {_QUEUE: Limit(running=1)},
    "limit key": {_KEYS: Limit(running=1)},
    "limit key due": {_KEYS: Limit(running=1)},
    "no limit key": {_KEYS: Limit(running=1)},
}
SETUPS: dict[str, Callable[[JobStore, Instant], Awaitable[Leases]]] = {
    "absent": _absent,
    "limited": _limited,
    "limited full": _limited_full,
    "limit key": _limit_key,
    "limit key due": _limit_key_due,
    "no limit key": _absent,
    "ready": _ready,
    "due": _due,
    "running": _running,
    "asked": _asked,
    "completed": _ended(Completed("1")),
    "failed": _ended(Failed(Failure("ValueError", "no"))),
    "cancelled": _ended(Cancelled("unwanted")),
    "two": _two,
    "no line": _absent,
    "line": _line,
    "line alone": _line_alone,
    "line at last": _line_at_last,
    "line ready": _line_ready,
    "line failed": _line_failed,
    "lines": _lines,
    "family": _family,
    "family ended": _family_ended,
    "family failed": _family_failed,
    "family with key": _family_with_key,
    "family with key retried": _family_with_key_retried,
    "family in line": _family_in_line,
    "no key": _absent,
    "key ready": _unique("waiting", "ready"),
    "key in line": _unique("waiting", "ready", order_key="x"),
    "key due": _unique("waiting", "due"),
    "key running": _unique("waiting", "running"),
    "key running to its end": _unique("unfinished", "running"),
    "key failed": _unique("unfinished", "failed"),
    "no schedule": _absent,
    "schedule due": _schedule_due,
    "schedule paused": _schedule_due,
    "schedule declared": _schedule_due,
}
