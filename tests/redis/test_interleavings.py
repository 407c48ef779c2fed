"""Two verbs at once: whatever comes between the scripts of the first, the outcome is that of one after the other.

A verb reads, decides and writes by several scripts. Here another verb runs as a whole before each of them in turn. What
both have answered, and what is stored then, must be what one of the two serial orders gives; and the keys must agree.
"""

from __future__ import annotations

import itertools
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any, NamedTuple

import pytest
from tests.redis.whole import check_whole
from tests.servers.redis import own_store

from holdfast.backends.redis.steps import ScriptCall
from holdfast.backends.redis.wire import AsyncWire
from holdfast.errors import HoldfastError, LeaseLost, TransactionConflict
from holdfast.model.conditions import Conditions, OnConflict, Unique, UniqueScope
from holdfast.model.job import JobState, Lease, NewJob
from holdfast.model.limits import Limit, LimitKey
from holdfast.model.outcome import Cancelled, Completed, Failed, Retried
from holdfast.store.backend import Backend
from holdfast.store.values import ClaimRequest, Finish, Retention
from holdfast.testing.clock import ManualClock
from holdfast.testing.conformance.base import FAILURE, LEASE, claim
from holdfast.testing.redis_server import Flavour
from holdfast.testing.stores import open_store

IDS = [f"00000000-0000-7000-8000-{number:012x}" for number in range(1, 20)]
HELD, HEAD, BEHIND, UNIQUE, CHILD, LATER, FAILED_, LIMITED, DONE = IDS[:9]
NEW, OTHER, THIRD, KEPT, NEXT, LAST = IDS[9:15]
EACH = LimitKey("key", "call")


def job(job_id: str, **fields: Any) -> NewJob:
    fields = {"queue": "default", "task": "greet", "payload": "{}", **fields}
    return NewJob(id=job_id, **fields)


def keyed(job_id: str, **fields: Any) -> NewJob:
    return job(job_id, task="call", limit_key="k", **fields)


def unique(on_conflict: OnConflict = OnConflict.KEEP) -> Conditions:
    return Conditions(unique=Unique("k", on_conflict=on_conflict))


class World(NamedTuple):
    """A store with jobs in every state, and the leases of those that run."""

    backend: Backend
    leases: dict[str, Lease]
    worker: str


async def prepare(backend: Backend, clock: ManualClock) -> dict[str, Lease]:
    jobs = backend.jobs
    await jobs.enqueue([job(FAILED_, conditions=unique())])
    (failed,) = await claim(backend)
    await jobs.finish([Finish(failed.lease, Failed(FAILURE))])
    await jobs.enqueue([job(DONE, queue="empty")])
    (done,) = await claim(backend)
    await jobs.finish([Finish(done.lease, Completed())])
    clock.advance(1)
    await jobs.enqueue([job(HELD), job(HEAD, order_key="a")])
    leases = {each.id: each.lease for each in await claim(backend)}
    await backend.queues.limit(LimitKey("queue", "narrow"), Limit(running=1))
    await backend.queues.limit(LimitKey("queue", "empty"), Limit(running=1))
    await backend.queues.limit(EACH, Limit(running=2))
    await jobs.enqueue([keyed(KEPT), keyed(NEXT), keyed(LAST)])
    leases |= {each.id: each.lease for each in await claim(backend, 1, tasks=("call",))}
    await jobs.enqueue(
        [
            job(BEHIND, order_key="a"),
            job(UNIQUE, conditions=Conditions(unique=Unique("u"))),
            job(CHILD, conditions=Conditions(after=(HELD,))),
            job(LATER, delay=timedelta(seconds=5)),
            job(LIMITED, queue="narrow"),
        ]
    )
    clock.advance(LEASE + timedelta(seconds=1))  # the leases have expired, and one job is due
    return leases


Operation = Callable[[World], Awaitable[Any]]


async def _claimed(world: World, queues: tuple[str, ...] | None = None, task: str = "greet") -> Any:
    request = ClaimRequest(world.worker, (task,), 2, LEASE, queues)
    found = await world.backend.jobs.claim(request)
    return sorted(each.id for each in found.jobs), found.is_limited


async def _finished(world: World, job_id: str, outcome: Any) -> Any:
    return await world.backend.jobs.finish([Finish(world.leases[job_id], outcome)])


OPERATIONS: dict[str, Operation] = {
    "claim": _claimed,
    "claim within a limit": lambda world: _claimed(world, ("narrow",)),
    "claim from an empty queue": lambda world: _claimed(world, ("empty",)),
    "complete a parent": lambda world: _finished(world, HELD, Completed('"x"')),
    "complete the head": lambda world: _finished(world, HEAD, Completed()),
    "fail a parent": lambda world: _finished(world, HELD, Failed(FAILURE)),
    "cancel the head": lambda world: _finished(world, HEAD, Cancelled("no")),
    "retry the head later": lambda world: _finished(world, HEAD, Retried(timedelta(seconds=1), FAILURE)),
    "rescue": lambda world: _rescued(world.backend),
    "extend": lambda world: world.backend.jobs.extend(world.leases[HELD], LEASE),
    "progress": lambda world: world.backend.jobs.progress(world.leases[HELD], 50.0, "half"),
    "release": lambda world: world.backend.jobs.release([world.leases[HEAD]], started=True),
    "promote": lambda world: _promoted(world.backend),
    "cancel a waiting job": lambda world: world.backend.jobs.cancel(BEHIND, "no"),
    "cancel a running job": lambda world: world.backend.jobs.cancel(HELD, "no"),
    "cancel a child": lambda world: world.backend.jobs.cancel(CHILD, "no"),
    "retry": lambda world: world.backend.jobs.retry(FAILED_),
    "delete": lambda world: _deleted(world.backend),
    "prune": lambda world: world.backend.jobs.prune(Retention(completed=timedelta(seconds=1)), 10),
    "enqueue": lambda world: world.backend.jobs.enqueue([job(NEW), job(OTHER, order_key="a")]),
    "enqueue a unique job": lambda world: world.backend.jobs.enqueue([job(NEW, conditions=unique()), job(OTHER)]),
    "enqueue another unique job": lambda world: world.backend.jobs.enqueue([job(THIRD, conditions=unique())]),
    "replace": lambda world: world.backend.jobs.enqueue([_replacing()]),
    "enqueue a child": lambda world: world.backend.jobs.enqueue([_child(NEW, HELD, FAILED_), job(OTHER)]),
    "enqueue a child of a waiting job": lambda world: world.backend.jobs.enqueue([_child(THIRD, UNIQUE, DONE)]),
    "enqueue to a new queue": lambda world: world.backend.jobs.enqueue([job(THIRD, queue="new")]),
    "enqueue into an empty queue": lambda world: world.backend.jobs.enqueue(
        [job(NEW, queue="empty"), job(OTHER, queue="empty")]
    ),
    "pause": lambda world: world.backend.queues.pause("default"),
    "claim from a key": lambda world: _claimed(world, task="call"),
    "complete in a key": lambda world: _finished(world, KEPT, Completed()),
    "retry in a key": lambda world: _finished(world, KEPT, Retried(timedelta(seconds=1), FAILURE)),
    "cancel in a key": lambda world: world.backend.jobs.cancel(NEXT, "no"),
    "enqueue into a key": lambda world: world.backend.jobs.enqueue([keyed(NEW), keyed(OTHER, delay=LEASE)]),
    "enqueue a unique job into a key": lambda world: world.backend.jobs.enqueue([keyed(THIRD, conditions=unique())]),
    "lower the limit of keys": lambda world: world.backend.queues.limit(EACH, Limit(running=1)),
    "set a rate for keys": lambda world: world.backend.queues.limit(EACH, Limit(running=3, rate="1/s", burst=2)),
    "an effect of a parent": lambda world: _effect(world, [], [Finish(world.leases[HELD], Completed('"x"'))]),
    "an effect with a unique job": lambda world: _effect(
        world,
        [job(THIRD, conditions=unique()), _child(NEW, HELD, UNIQUE)],
        [Finish(world.leases[HELD], Retried(timedelta(seconds=1), FAILURE))],
    ),
    "an effect that finds its unique job": lambda world: _effect(
        world,
        [job(THIRD, conditions=Conditions(unique=Unique("u", UniqueScope.WAITING)))],
        [Finish(world.leases[HELD], Completed())],
    ),
    "effects of a batch": lambda world: _effect(
        world,
        [job(OTHER, order_key="a")],
        [Finish(world.leases[HELD], Failed(FAILURE)), Finish(world.leases[HEAD], Completed())],
    ),
}


async def _effect(world: World, jobs: list[NewJob], ends: list[Finish]) -> Any:
    """Write an effect that depends on a read, enqueue jobs and end others; after a conflict again, as a worker does."""
    while True:
        try:
            leases = [end.lease for end in ends]
            async with world.backend.transactions.begin_many(leases, limit=LEASE) as transaction:
                if len(transaction.held) < len(ends):
                    return "lost"
                effects = transaction.connection
                before = int(await effects.read("GET", effects.key("total")) or 0)
                effects.queue("SET", effects.key("total"), before + 1)
                effects.queue("RPUSH", effects.key("list"), before)
                answers = await world.backend.jobs.enqueue(jobs) if jobs else None
                await transaction.finish(ends)
        except TransactionConflict:
            continue
        except LeaseLost:
            return "lost"
        return answers


async def _effects(backend: Any) -> tuple[Any, Any]:
    key = backend._parts.here.server.location.prefix.replace("}:", "}/")
    ask = backend._parts.here.wire.ask
    return await ask("GET", f"{key}total"), await ask("LRANGE", f"{key}list", 0, -1)


def _replacing() -> NewJob:
    replacing = Conditions(unique=Unique("u", on_conflict=OnConflict.REPLACE))
    return NewJob(id=NEW, queue="default", task="greet", payload="[1]", conditions=replacing)


def _child(job_id: str, *parents: str) -> NewJob:
    return job(job_id, conditions=Conditions(after=parents, run_anyway=True))


async def _rescued(backend: Backend) -> Any:
    """Rescue, and once more: a job whose row changed meanwhile is left to the next call."""
    found = [*await backend.jobs.rescue(None, 10), *await backend.jobs.rescue(None, 10)]
    return sorted((each.job_id, each.state) for each in found)


async def _deleted(backend: Backend) -> Any:
    states = [JobState.FAILED, JobState.COMPLETED]
    return sorted((await backend.jobs.delete([FAILED_, DONE], states, timedelta(0))).items())


async def _promoted(backend: Backend) -> Any:
    """Return when the next job is due: who decides on a child counts it."""
    return (await backend.jobs.promote(10)).next_due


async def _answer(operation: Operation, world: World) -> str:
    try:
        return str(await operation(world))
    except HoldfastError as error:
        return f"{type(error).__name__}: {error}"


async def _stored(backend: Backend) -> str:
    """Return what is stored of all jobs, after what was left undone is done."""
    await backend.jobs.promote(100)
    lines: list[str] = []
    for each in IDS[:15]:
        try:
            found = await backend.insight.job(each)
        except HoldfastError:
            lines.append(f"{each}: none")
            continue
        held = found.lease and (found.lease.worker_id, found.lease.expires_in, found.lease.note)
        lines.append(f"{each}: {found.job.state} {found.job.attempt} {found.payload} {found.unique_key} {held}")
    lines.append(str(await _effects(backend)))
    return "\n".join([*lines, str(await backend.jobs.outstanding(["greet", "call"], None))])


WORKERS = ("worker-b", "worker-c")


async def _run(
    names: tuple[str, str],
    before: int | None,
    monkeypatch: pytest.MonkeyPatch,
    workers: tuple[str, str] = WORKERS,
    flavour: Flavour = "valkey",
) -> tuple[int, tuple[str, str, str]]:
    """Run the first operation, and the second before its `before`-th script; after it if it has fewer, or None."""
    clock = ManualClock()
    with own_store(flavour) as url:
        async with open_store(url, clock=clock) as backend, open_store(url, clock=clock) as rival:
            leases = await prepare(backend, clock)
            await rival.insight.queues()
            first, second = World(backend, leases, workers[0]), World(rival, leases, workers[1])
            answers: list[str] = []
            calls = 0
            call = AsyncWire.call

            async def stepping(wire: AsyncWire, asked: ScriptCall, store: bytes) -> Any:
                nonlocal calls
                if wire.url == backend.url and wire is backend._parts.here.wire:  # type: ignore[attr-defined]
                    calls += 1
                    if calls == before:
                        answers.append(await _answer(OPERATIONS[names[1]], second))
                return await call(wire, asked, store)

            with monkeypatch.context() as patch:
                patch.setattr(AsyncWire, "call", stepping)
                answer = await _answer(OPERATIONS[names[0]], first)
            if not answers:
                answers.append(await _answer(OPERATIONS[names[1]], second))
            check_whole(url)
            return calls, (answer, answers[0], await _stored(backend))


async def _check(one: str, other: str, monkeypatch: pytest.MonkeyPatch, flavour: Flavour = "valkey") -> None:
    calls, first_order = await _run((one, other), None, monkeypatch, flavour=flavour)
    _, (answer, before, stored) = await _run((other, one), None, monkeypatch, WORKERS[::-1], flavour)
    allowed = {first_order, (before, answer, stored)}
    for place in range(1, calls + 1):
        _, came = await _run((one, other), place, monkeypatch, flavour=flavour)
        assert came in allowed, f"{other!r} before script {place} of {one!r}"


SHARED = [
    ("claim", "claim"),
    ("rescue", "extend"),
    ("rescue", "complete a parent"),
    ("retry", "enqueue a unique job"),
    ("enqueue a unique job", "retry"),
    ("enqueue a unique job", "enqueue another unique job"),
    ("enqueue a child", "complete a parent"),
    ("enqueue a child", "delete"),
    ("enqueue a child of a waiting job", "replace"),
    ("retry", "enqueue a child"),
    ("replace", "claim"),
    ("enqueue", "enqueue to a new queue"),
    ("claim", "enqueue to a new queue"),
    ("an effect with a unique job", "enqueue to a new queue"),
    ("cancel the head", "enqueue"),
    ("claim within a limit", "claim within a limit"),
    ("claim from an empty queue", "enqueue into an empty queue"),
    ("cancel a running job", "complete a parent"),
    ("complete in a key", "enqueue into a key"),
    ("enqueue into a key", "complete in a key"),
    ("cancel in a key", "claim from a key"),
    ("lower the limit of keys", "claim from a key"),
    ("set a rate for keys", "complete in a key"),
    ("an effect of a parent", "an effect of a parent"),
    ("an effect of a parent", "rescue"),
    ("an effect with a unique job", "enqueue another unique job"),
    ("an effect with a unique job", "cancel a running job"),
    ("an effect with a unique job", "effects of a batch"),
    ("an effect that finds its unique job", "claim"),
    ("an effect that finds its unique job", "replace"),
    ("effects of a batch", "progress"),
    ("effects of a batch", "enqueue a child"),
    ("enqueue a child", "effects of a batch"),
]


@pytest.mark.parametrize("flavour", ["valkey", pytest.param("redis", marks=pytest.mark.slow)])
@pytest.mark.parametrize(("one", "other"), SHARED)
async def test_the_outcome_is_that_of_a_serial_order(
    one: str, other: str, flavour: Flavour, monkeypatch: pytest.MonkeyPatch
):
    await _check(one, other, monkeypatch, flavour)


STEPWISE = {"lower the limit of keys", "set a rate for keys"}
"""On every store, the limit is set first, and then applied to each key in a step of its own."""


@pytest.mark.torture  # a quarter of an hour for all of a server; `make test` has the pairs that share most
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("flavour", ["valkey", "redis"])
@pytest.mark.parametrize("one", [each for each in OPERATIONS if each not in STEPWISE])
async def test_the_outcome_of_any_pair_is_that_of_a_serial_order(
    one: str, flavour: Flavour, monkeypatch: pytest.MonkeyPatch
):
    for other in OPERATIONS:
        if other not in STEPWISE or one != "rescue":  # a rescue takes several steps, between which a limit may change
            await _check(one, other, monkeypatch, flavour)


def test_each_operation_is_in_a_pair():
    assert set(itertools.chain(*SHARED)) <= OPERATIONS.keys()
