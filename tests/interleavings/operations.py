"""The operations that are run together, and the states of a job in which they are.

Each is written once against `Verbs`, and runs on the store, step by step, and on the reference model.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Protocol

import msgspec

from holdfast.errors import ConfigError, JobNotFound, ScheduleNotFound, UniqueConflict
from holdfast.model.conditions import Conditions, OnConflict, Unique, UniqueScope
from holdfast.model.job import FINAL_STATES, Lease, NewJob
from holdfast.model.outcome import Completed, Failed, Failure, Outcome, Retried
from holdfast.model.schedule import recurrence
from holdfast.model.schedule_definition import ScheduleDefinition
from holdfast.store.jobs import JobStore
from holdfast.store.schedules import Fired, ScheduleStore
from holdfast.store.values import ClaimRequest, Extension, Finish, Promotion, Rescued, Retention, Verdict

JOB = "00000000-0000-7000-8000-000000000001"
SECOND = "00000000-0000-7000-8000-000000000002"
THIRD = "00000000-0000-7000-8000-000000000003"
FOURTH = "00000000-0000-7000-8000-000000000004"
FIFTH = "00000000-0000-7000-8000-000000000005"
QUEUE, TASK = "mail", "greet"
LEASE = timedelta(seconds=30)
RETRIED = Retried(timedelta(seconds=10), Failure("ValueError", "no"))
SOON = timedelta(days=1)
FOR_EVER = timedelta(days=400)
SCHEDULE, APP = "tidy", "shop"

Leases = dict[str, Lease]


class Instant:
    """The clock of the store and of the model; it stands still while operations run together."""

    def __init__(self) -> None:
        self.now_us = 1_700_000_000_000_000

    def __call__(self) -> int:
        return self.now_us

    def advance(self, span: timedelta) -> None:
        self.now_us += span // timedelta(microseconds=1)


class Verbs(Protocol):
    """The verbs of a store, bound to one side."""

    jobs: JobStore
    schedules: ScheduleStore

    async def extend_many(self, held: Sequence[Lease], duration: timedelta) -> Extension: ...

    async def complete_inside(self, lease: Lease) -> Verdict: ...

    async def batch_inside(self, finishes: Sequence[Finish]) -> dict[str, Verdict]: ...

    def together(self) -> AbstractAsyncContextManager[None]: ...


@dataclass(frozen=True)
class World:
    """What an operation is given."""

    verbs: Verbs
    leases: Leases
    worker_id: str


@dataclass(frozen=True)
class Operation:
    """An operation by name. `skips`: it passes over rows that another transaction holds.

    `may_miss_children`: by these it judges whether a parent may go, but does not wait for one that is being retried. It
    comes to the same as a retry just after the parent is gone. `may_miss_schedules`: it leaves a schedule to the next
    call that was changed between its look and its lock.
    """

    name: str
    run: Callable[[World], Awaitable[Any]]
    skips: bool = False
    may_miss_children: bool = False
    may_miss_schedules: bool = False

    async def __call__(self, world: World) -> Any:
        """Run it; what comes back is without seqs and fences."""
        try:
            return _plain(await self.run(world))
        except (ConfigError, JobNotFound, ScheduleNotFound) as error:
            return type(error).__name__
        except UniqueConflict as conflict:
            return conflict.job_id


def _plain(result: Any) -> Any:
    match result:
        case Promotion(moved):
            return moved
        case Fired(jobs, _):
            return jobs
        case Extension(lost, asked, skipped):
            return tuple([lease.job_id for lease in leases] for leases in (lost, asked, skipped))
        case [Rescued(), *_]:
            return sorted(result, key=lambda rescued: rescued.job_id)
        case _:
            return result


def a_job(job_id: str = JOB, order_key: str | None = None, *, max_attempts: int = 5) -> NewJob:
    """Return a job to enqueue."""
    return NewJob(id=job_id, queue=QUEUE, task=TASK, payload="[]", max_attempts=max_attempts, order_key=order_key)


def limited(job_id: str) -> NewJob:
    """Return a job with a limit key."""
    return msgspec.structs.replace(a_job(job_id), limit_key="k")


def a_child(job_id: str, *parents: str, key: str | None = None) -> NewJob:
    """Return a job that waits for these, with a unique key if it is to be."""
    wanted = None if key is None else Unique(key)
    return msgspec.structs.replace(a_job(job_id), conditions=Conditions(unique=wanted, after=parents))


def unique(
    job_id: str,
    scope: str = "unfinished",
    on_conflict: str = "keep",
    *,
    key: str = "u",
    order_key: str | None = None,
) -> NewJob:
    """Return a job with a unique key, whose arguments tell it from others."""
    wanted = Unique(key, UniqueScope(scope), OnConflict(on_conflict))
    conditions = Conditions(unique=wanted)
    payload = f"[{int(job_id[-1])}]"
    return NewJob(id=job_id, queue=QUEUE, task=TASK, payload=payload, order_key=order_key, conditions=conditions)


def a_schedule(every: int = 300, payload: str = "{}") -> ScheduleDefinition:
    """Return a schedule, all of whose missed times fire."""
    return ScheduleDefinition(recurrence(every=every, missed="all"), TASK, queue=QUEUE, payload=payload)


def request(worker_id: str, limit: int = 10) -> ClaimRequest:
    """Return a request for whatever is ready."""
    return ClaimRequest(worker_id=worker_id, tasks=(TASK,), limit=limit, lease=LEASE)


async def _claim(world: World) -> Any:
    claim = await world.verbs.jobs.claim(request(world.worker_id))
    return [(job.id, job.attempt, job.excused, job.interrupted, job.lost) for job in claim.jobs]


async def _enqueue_both(world: World, *ids: str) -> Any:
    async with world.verbs.together():
        return [await world.verbs.jobs.enqueue([a_job(job_id)]) for job_id in ids]


async def _complete_then_enqueue(world: World, following: NewJob) -> Any:
    """The last step of a handler that hands on to another job, in its own transaction."""
    async with world.verbs.together():
        verdict = await world.verbs.complete_inside(world.leases["holder"])
        return verdict, await world.verbs.jobs.enqueue([following])


def _enqueue(*jobs: NewJob) -> Callable[[World], Awaitable[Any]]:
    return lambda w: w.verbs.jobs.enqueue(jobs)


def _finish(outcome: Outcome, *holders: str) -> Callable[[World], Awaitable[Any]]:
    return lambda w: w.verbs.jobs.finish([Finish(w.leases[holder], outcome) for holder in holders])


def _batch(*holders: str, retries: str | None = None) -> Callable[[World], Awaitable[Any]]:
    return lambda w: w.verbs.batch_inside(
        [Finish(w.leases[holder], RETRIED if holder == retries else Completed("4")) for holder in holders]
    )


_ALL = [
    Operation("enqueue", lambda w: w.verbs.jobs.enqueue([a_job()])),
    Operation("enqueue both", lambda w: _enqueue_both(w, JOB, SECOND)),
    Operation("enqueue both, second first", lambda w: _enqueue_both(w, SECOND, JOB)),
    Operation("claim", _claim, skips=True),
    Operation("promote", lambda w: w.verbs.jobs.promote(10), skips=True),
    Operation("extend", lambda w: w.verbs.jobs.extend(w.leases["holder"], LEASE)),
    Operation("extend many", lambda w: w.verbs.extend_many([w.leases["holder"]], LEASE), skips=True),
    Operation("complete", _finish(Completed("1"), "holder")),
    Operation("complete inside", lambda w: w.verbs.complete_inside(w.leases["holder"])),
    Operation("complete, then enqueue", lambda w: _complete_then_enqueue(w, a_job(SECOND))),
    Operation("retried", _finish(RETRIED, "holder")),
    Operation("failed", _finish(Failed(Failure("ValueError", "no")), "holder")),
    Operation("release", lambda w: w.verbs.jobs.release([w.leases["holder"]], started=True)),
    Operation("progress", lambda w: w.verbs.jobs.progress(w.leases["holder"], 50, None)),
    Operation("verify", lambda w: w.verbs.jobs.verify(w.leases["holder"])),
    Operation("rescue", lambda w: w.verbs.jobs.rescue(None, 10), skips=True),
    Operation("rescue worker", lambda w: w.verbs.jobs.rescue_worker("holder", "killed", 10), skips=True),
    Operation("reset", lambda w: w.verbs.jobs.reset(JOB)),
    Operation("cancel", lambda w: w.verbs.jobs.cancel(JOB, "unwanted")),
    Operation("retry", lambda w: w.verbs.jobs.retry(JOB)),
    Operation("prune", lambda w: w.verbs.jobs.prune(Retention(SOON, SOON, SOON, None), 10), may_miss_children=True),
    Operation("cancel both", lambda w: w.verbs.jobs.cancel_all([SECOND, JOB], "unwanted")),
    Operation("delete", lambda w: w.verbs.jobs.delete([JOB, SECOND], FINAL_STATES, SOON)),
    Operation("stale complete", _finish(Completed("2"), "zombie")),
    Operation("stale retried", _finish(RETRIED, "zombie")),
    Operation("stale extend", lambda w: w.verbs.jobs.extend(w.leases["zombie"], FOR_EVER)),
    Operation("stale extend many", lambda w: w.verbs.extend_many([w.leases["zombie"]], FOR_EVER)),
    Operation("stale release", lambda w: w.verbs.jobs.release([w.leases["zombie"]], started=False)),
    Operation("stale complete inside", lambda w: w.verbs.complete_inside(w.leases["zombie"])),
    Operation("complete mixed", _finish(Completed("3"), "holder", "other", "other zombie", "zombie")),
    Operation("retried mixed", _finish(RETRIED, "other zombie", "other", "zombie", "holder")),
    Operation("release both", lambda w: w.verbs.jobs.release([w.leases["other"], w.leases["holder"]], started=True)),
    Operation("enqueue third", _enqueue(a_job(THIRD, "x"))),
    Operation("enqueue fourth", _enqueue(a_job(FOURTH, "x"))),
    Operation("enqueue y", _enqueue(a_job(SECOND, "y"))),
    Operation("enqueue x, y", _enqueue(a_job(THIRD, "x"), a_job(FOURTH, "y"))),
    Operation("enqueue y, x", _enqueue(a_job(FOURTH, "y"), a_job(THIRD, "x"))),
    Operation("enqueue y, none, x", _enqueue(a_job(JOB, "y"), a_job(SECOND), a_job(FOURTH, "x"))),
    Operation("cancel second", lambda w: w.verbs.jobs.cancel(SECOND, "unwanted")),
    Operation("complete, then enqueue third", lambda w: _complete_then_enqueue(w, a_job(THIRD, "x"))),
    Operation("enqueue k third", _enqueue(limited(THIRD))),
    Operation("enqueue k fourth", _enqueue(limited(FOURTH), limited(FIFTH))),
    Operation("enqueue child", _enqueue(a_child(THIRD, JOB))),
    Operation("enqueue child of both", _enqueue(a_child(FOURTH, JOB, SECOND))),
    Operation("enqueue family", _enqueue(a_child(FOURTH, THIRD), a_child(THIRD, JOB))),
    Operation("enqueue grandchild", _enqueue(a_child(FOURTH, THIRD))),
    Operation("settle", lambda w: w.verbs.jobs.promote(10), skips=True),
    Operation("cancel child", lambda w: w.verbs.jobs.cancel(THIRD, "unwanted")),
    Operation("retry child", lambda w: w.verbs.jobs.retry(THIRD)),
    Operation("complete second", _finish(Completed("4"), "other")),
    Operation("failed second", _finish(Failed(Failure("ValueError", "no")), "other")),
    Operation("complete x, y", _finish(Completed("3"), "holder", "other")),
    Operation("enqueue u", _enqueue(unique(SECOND))),
    Operation("enqueue u too", _enqueue(unique(THIRD))),
    Operation("enqueue u, v", _enqueue(unique(SECOND), unique(FOURTH, key="v"))),
    Operation("enqueue v, u", _enqueue(unique(FOURTH, key="v"), unique(THIRD))),
    Operation("enqueue u while waiting", _enqueue(unique(SECOND, "waiting"))),
    Operation("replace u", _enqueue(unique(SECOND, "waiting", "replace"))),
    Operation("replace u too", _enqueue(unique(THIRD, "waiting", "replace"))),
    Operation("refuse u", _enqueue(unique(FIFTH, on_conflict="raise"))),
    Operation("complete, then enqueue u", lambda w: _complete_then_enqueue(w, unique(SECOND))),
    Operation("replace u, enqueue v", _enqueue(unique(SECOND, "waiting", "replace"), unique(FOURTH, key="v"))),
    Operation("enqueue child with u", _enqueue(a_child(THIRD, JOB, key="u"))),
    Operation("enqueue child with v", _enqueue(a_child(THIRD, JOB, key="v"))),
    Operation("batch inside", _batch("holder", "other")),
    Operation("mixed batch inside", _batch("other", "zombie", "holder", "other zombie", retries="holder")),
    Operation("fire", lambda w: w.verbs.schedules.fire([TASK], [SCHEDULE], 10), may_miss_schedules=True),
    Operation("fire one", lambda w: w.verbs.schedules.fire([TASK], [SCHEDULE], 1), may_miss_schedules=True),
    Operation("pause schedule", lambda w: w.verbs.schedules.pause(SCHEDULE)),
    Operation("resume schedule", lambda w: w.verbs.schedules.resume(SCHEDULE)),
    Operation("remove schedule", lambda w: w.verbs.schedules.remove(SCHEDULE, SOON)),
    Operation("put schedule", lambda w: w.verbs.schedules.put(SCHEDULE, a_schedule(payload="[1]"))),
    Operation("put other times", lambda w: w.verbs.schedules.put(SCHEDULE, a_schedule(every=60))),
    Operation("declare", lambda w: w.verbs.schedules.declare(APP, {SCHEDULE: a_schedule()}, overrules=None)),
    Operation(
        "declare other times", lambda w: w.verbs.schedules.declare(APP, {SCHEDULE: a_schedule(60)}, overrules=None)
    ),
    Operation("overrule", lambda w: w.verbs.schedules.declare(APP, {}, overrules={SCHEDULE: Instant().now_us})),
    Operation("failed y, x", _finish(Failed(Failure("ValueError", "no")), "other", "holder")),
]
OPERATIONS = {operation.name: operation for operation in _ALL}
