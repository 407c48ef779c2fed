"""Large enqueues with unique keys and parents: all or none, whatever comes between their scripts."""

from __future__ import annotations

import asyncio
import itertools
from collections import Counter
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.redis.ending import Ends, acting_before, ending_before, losing_reply
from tests.redis.whole import check_whole
from tests.servers.redis import connection_of

from holdfast.backends.redis import jobs as enqueuing
from holdfast.backends.redis import staging
from holdfast.backends.redis.backend import RedisBackend
from holdfast.backends.redis.steps import ScriptCall
from holdfast.backends.redis.wire import AsyncWire
from holdfast.errors import JobNotFound, OutcomeUnknown, StoreUnavailable, UniqueConflict
from holdfast.model.conditions import Conditions, OnConflict, Unique, UniqueScope
from holdfast.model.ids import new_id
from holdfast.model.job import JobState, NewJob
from holdfast.model.limits import Limit, LimitKey
from holdfast.model.outcome import Completed, Failed
from holdfast.store.values import Finish, Retention
from holdfast.testing.clock import ManualClock
from holdfast.testing.conformance.base import FAILURE, MANY, a_job, claim, enqueue, state_of
from holdfast.testing.stores import open_store

LATER = timedelta(seconds=3)  # a lock that is not kept up has expired


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    """Stage few jobs in many scripts."""
    if "workload" not in request.fixturenames:
        monkeypatch.setattr(enqueuing, "_IN_ONE", 4)
        monkeypatch.setattr(staging, "_JOBS", 3)
        monkeypatch.setattr(staging, "_COMMANDS", 5)
        monkeypatch.setattr(staging, "_WORDS", 20)


def unique(key: str, on_conflict: OnConflict = OnConflict.KEEP, **fields: Any) -> NewJob:
    conditions = Conditions(unique=Unique(key, UniqueScope.UNFINISHED, on_conflict))
    return NewJob(id=new_id(), queue="default", task="greet", payload="{}", conditions=conditions, **fields)


def child(*parents: str, job_id: str | None = None, **fields: Any) -> NewJob:
    conditions = Conditions(after=parents)
    return NewJob(id=job_id or new_id(), queue="default", task="greet", payload="{}", conditions=conditions, **fields)


def tree(root: str | None = None) -> list[NewJob]:
    """Return jobs in an order that is none of theirs: a top with five children, each of them with one, and a last."""
    top = a_job() if root is None else child(root)
    middle = [child(top.id) for _ in range(5)]
    leaves = [child(each.id) for each in middle]
    last = child(*(leaf.id for leaf in leaves))
    return [last, *leaves, *middle[::2], top, *middle[1::2]]


async def drained(backend: RedisBackend) -> list[str]:
    """Run all jobs; return their ids in the order of their ends."""
    ran: list[str] = []
    while jobs := await claim(backend):
        assert await backend.jobs.finish([Finish(job.lease, Completed()) for job in jobs])
        ran += [job.id for job in jobs]
    return ran


def _in_order(jobs: list[NewJob], ran: list[str]) -> bool:
    place = {job_id: number for number, job_id in enumerate(ran)}
    parents = [(parent, job.id) for job in jobs if job.conditions for parent in job.conditions.after]
    return all(place[parent] < place[child_id] for parent, child_id in parents if parent in place)


async def test_a_graph_in_one_call_drains_in_order(backend: RedisBackend, url: str):
    jobs = tree()
    assert await backend.jobs.enqueue(jobs) == [True] * len(jobs)
    check_whole(url)
    assert await backend.jobs.enqueue(jobs) == [False] * len(jobs)
    ran = await drained(backend)
    assert sorted(ran) == sorted(job.id for job in jobs)
    assert _in_order(jobs, ran)
    check_whole(url)


async def test_each_job_is_answered_as_in_a_small_call(backend: RedisBackend, url: str):
    (held,) = await enqueue(backend, unique("a"))
    jobs = [unique("a"), unique("b"), a_job(), unique("c"), unique("b"), a_job(), unique("d")]
    assert await backend.jobs.enqueue(jobs) == [held, True, True, True, jobs[1].id, True, True]
    again = [unique("a", OnConflict.REPLACE), unique("c"), *(unique(f"e{number}") for number in range(4))]
    assert await backend.jobs.enqueue(again) == [held, jobs[3].id, True, True, True, True]
    check_whole(url)
    assert len(await drained(backend)) == 10


async def test_a_refused_call_enqueues_nothing_and_keeps_no_other_call(backend: RedisBackend, url: str):
    (held,) = await enqueue(backend, unique("a"))
    with pytest.raises(UniqueConflict):
        await backend.jobs.enqueue([unique("a", OnConflict.RAISE), *(unique(f"b{number}") for number in range(6))])
    with pytest.raises(JobNotFound):
        await backend.jobs.enqueue([child(new_id()), *(a_job() for _ in range(6))])
    assert await backend.jobs.enqueue([unique("b1")]) == [True]
    assert {job.id for job in await claim(backend)} >= {held}
    check_whole(url)


async def test_jobs_of_an_order_key_keep_the_order_of_the_call(backend: RedisBackend, url: str):
    ordered = [unique(f"k{number}", order_key="a") for number in range(9)]
    await enqueue(backend, *ordered)
    check_whole(url)
    assert await drained(backend) == [job.id for job in ordered]


def mixed(parent: str) -> list[NewJob]:
    """Return jobs with all conditions: a graph below a job of the store, and unique keys."""
    return [*tree(parent), *(unique(f"u{number}") for number in range(4)), unique("u1"), a_job()]


async def _again(url: str, clock: ManualClock, jobs: list[NewJob], parent: str) -> None:
    """Enqueue the same jobs in another process, and run them: each once, after its parents."""
    clock.advance(LATER)
    async with open_store(url, clock=clock) as rival:
        assert isinstance(rival, RedisBackend)
        answers = await rival.jobs.enqueue(jobs)
        assert set(answers) <= {True, False, jobs[-5].id}
        check_whole(url)
        ran = await drained(rival)
        assert Counter(ran) == Counter({job.id for job in jobs if job is not jobs[-2]} | {parent})
        assert _in_order(jobs, ran)
        check_whole(url)


@pytest.fixture(params=[7, pytest.param(1, marks=pytest.mark.slow)])
def numbers(request: pytest.FixtureRequest) -> Iterator[int]:
    """Return the numbers of calls, some or all; the test breaks off after the last."""
    return itertools.count(1, request.param)


@pytest.mark.timeout(180)
async def test_a_process_that_ends_anywhere_has_enqueued_all_or_none(
    url: str, clock: ManualClock, monkeypatch: pytest.MonkeyPatch, numbers: Iterator[int]
):
    for number in numbers:
        async with open_store(url, clock=clock) as backend:
            assert isinstance(backend, RedisBackend)
            (parent,) = await enqueue(backend, a_job())
            jobs = mixed(parent)
            with monkeypatch.context() as patch:
                ending_before(patch, number)
                try:
                    await backend.jobs.enqueue(jobs)
                except Ends:
                    pass
                else:
                    break
            there = {seen.id for seen in await backend.insight.states([job.id for job in jobs])}
            await backend.jobs.promote(MANY)  # a worker goes on with what is enqueued
            seen = {seen.id for seen in await backend.insight.states([job.id for job in jobs])}
            assert len(seen) in {0, len(jobs) - 1}
            assert there <= seen
            await _again(url, clock, jobs, parent)
    assert number > 15


@pytest.mark.timeout(180)
async def test_a_call_whose_reply_was_lost_may_be_repeated(
    url: str, clock: ManualClock, monkeypatch: pytest.MonkeyPatch, numbers: Iterator[int]
):
    for number in numbers:
        async with open_store(url, clock=clock) as backend:
            assert isinstance(backend, RedisBackend)
            (parent,) = await enqueue(backend, a_job())
            jobs = mixed(parent)
            with monkeypatch.context() as patch:
                losing_reply(patch, number)
                try:
                    await backend.jobs.enqueue(jobs)
                except (StoreUnavailable, OutcomeUnknown):
                    pass
                else:
                    break
            await _again(url, clock, jobs, parent)
    assert number > 15


@pytest.mark.timeout(180)
@pytest.mark.parametrize("outcome", ["completed", "failed", "cancelled", "deleted"])
async def test_a_parent_may_end_before_any_script(
    url: str, clock: ManualClock, monkeypatch: pytest.MonkeyPatch, outcome: str, numbers: Iterator[int]
):
    for number in numbers:
        async with open_store(url, clock=clock) as backend, open_store(url, clock=clock) as rival:
            (parent,) = await enqueue(backend, a_job())
            (held,) = await claim(backend)
            jobs = tree(parent)
            acted = False

            async def act(rival: Any = rival, held: Any = held, parent: str = parent) -> None:
                nonlocal acted
                acted = True
                if outcome == "cancelled":
                    await rival.jobs.cancel(parent, "no")
                ends = Failed(FAILURE) if outcome == "failed" else Completed()
                await rival.jobs.finish([Finish(held.lease, ends)])
                if outcome == "deleted":
                    clock.advance(LATER)
                    await rival.jobs.delete([parent], list(JobState), timedelta(0))

            with monkeypatch.context() as patch:
                acting_before(patch, number, act)
                try:
                    answers = await backend.jobs.enqueue(jobs)
                except JobNotFound:
                    assert outcome == "deleted"
                    continue
            if not acted:
                break
            assert answers == [True] * len(jobs)
            assert isinstance(backend, RedisBackend)
            top = jobs[-3]
            assert top.conditions is not None
            check_whole(url)
            if outcome == "failed":
                assert {seen.state for seen in await backend.insight.states([job.id for job in jobs])} == {"cancelled"}
            else:
                ran = await drained(backend)
                assert sorted(ran) == sorted(job.id for job in jobs)
                assert _in_order(jobs, ran)
    assert number > 10


async def test_concurrent_callers_of_the_same_keys_get_the_same_jobs(
    backend: RedisBackend, clock: ManualClock, url: str
):
    keys = [f"k{number}" for number in range(12)]
    calls = [[unique(key) for key in order] for order in (keys, keys[::-1], keys[3:], keys[:2], keys[5:7])]
    async with open_store(url, clock=clock) as rival:
        answers = await asyncio.gather(
            *((rival if number % 2 else backend).jobs.enqueue(jobs) for number, jobs in enumerate(calls))
        )
    holders: dict[str, set[str]] = {}
    for jobs, some in zip(calls, answers, strict=True):
        for job, answer in zip(jobs, some, strict=True):
            assert job.conditions is not None
            assert job.conditions.unique is not None
            holders.setdefault(job.conditions.unique.key, set()).add(answer if isinstance(answer, str) else job.id)
    assert {key: len(ids) for key, ids in holders.items()} == dict.fromkeys(keys, 1)
    assert sorted(await drained(backend)) == sorted(job_id for ids in holders.values() for job_id in ids)
    check_whole(url)


async def test_other_calls_wait_for_a_batch_and_pass_one_that_was_left(
    backend: RedisBackend, clock: ManualClock, monkeypatch: pytest.MonkeyPatch, url: str
):
    with monkeypatch.context() as patch:
        ending_before(patch, 3, "stage")
        with pytest.raises(Ends):
            await backend.jobs.enqueue([unique(f"k{number}") for number in range(9)])
    waiting = asyncio.create_task(backend.jobs.enqueue([unique("k1")]))
    await asyncio.sleep(0.1)
    assert not waiting.done()
    assert await backend.jobs.enqueue([a_job()]) == [True]  # without conditions
    clock.advance(LATER)
    assert await waiting == [True]
    check_whole(url)


# -- how long the server is busy


def timing(monkeypatch: pytest.MonkeyPatch, url: str) -> dict[str, float]:
    """Return a dictionary that gets the longest CPU time of each script, in ms: the load does not matter."""
    process = connection_of(url).info("server")["process_id"]
    counter = Path(f"/proc/{process}/task/{process}/schedstat")

    def spent() -> int:
        return int(counter.read_text().split()[0])

    longest: dict[str, float] = {}
    call = AsyncWire.call

    async def timed(wire: AsyncWire, asked: ScriptCall, store: bytes) -> Any:
        before = spent()
        reply = await call(wire, asked, store)
        took = (spent() - before) / 1e6
        longest[asked.script.name] = max(took, longest.get(asked.script.name, 0.0))
        return reply

    monkeypatch.setattr(AsyncWire, "call", timed)
    return longest


async def _graph_of_10_000(backend: RedisBackend) -> None:
    tops = [a_job() for _ in range(2000)]
    await backend.jobs.enqueue([job for top in tops for job in (top, *(child(top.id) for _ in range(4)))])
    ran = 0
    while jobs := await claim(backend, 250):
        await backend.jobs.finish([Finish(job.lease, Completed()) for job in jobs])
        ran += len(jobs)
    assert ran == 10_000


async def _unique_10_000(backend: RedisBackend) -> None:
    jobs = [unique(f"key-{number}") for number in range(10_000)]
    assert await backend.jobs.enqueue(jobs) == [True] * 10_000
    others = [unique(f"key-{number}") for number in range(10_000)]
    assert await backend.jobs.enqueue(others) == [job.id for job in jobs]


async def _children_of_one(backend: RedisBackend) -> None:
    (parent,) = await enqueue(backend, a_job())
    (held,) = await claim(backend)
    await backend.jobs.enqueue([child(parent) for _ in range(5000)])
    await backend.jobs.finish([Finish(held.lease, Completed())])
    assert [queue.ready for queue in await backend.insight.queues()] == [5000]


async def _parents_of_one(backend: RedisBackend) -> None:
    parents = await enqueue(backend, *(a_job() for _ in range(5000)))
    (last,) = await enqueue(backend, child(*parents))
    while jobs := await claim(backend, 250):
        await backend.jobs.finish([Finish(job.lease, Completed()) for job in jobs])
    assert await state_of(backend, last) is JobState.COMPLETED


async def _families_that_are_deleted(backend: RedisBackend) -> None:
    parents = [a_job() for _ in range(20)]
    jobs = [*parents, *(child(parent.id) for parent in parents for _ in range(500))]
    await backend.jobs.enqueue(jobs)
    ids = [job.id for job in jobs]
    for start in range(0, len(ids), 1000):
        await backend.jobs.cancel_all(ids[start : start + 1000], "no")
    gone = await backend.jobs.delete(ids[:5000], [JobState.CANCELLED], timedelta(0))
    assert set(gone.values()) == {None}


async def _many_lanes_that_are_pruned(backend: RedisBackend) -> None:
    jobs = [a_job(f"queue {number % 80}") for number in range(24_000)]
    await backend.jobs.enqueue(jobs)
    for _ in range(24):
        held = await claim(backend, 1000)
        await backend.jobs.finish([Finish(job.lease, Completed()) for job in held])
    backend._parts.here.server.clock.advance(2)  # type: ignore[union-attr]
    assert await backend.jobs.prune(Retention(completed=timedelta(seconds=1)), 5000) == 5000


async def _many_lanes_that_are_due_at_once(backend: RedisBackend) -> None:
    jobs = [a_job(f"queue {number % 80}", delay=timedelta(seconds=1)) for number in range(8000)]
    await backend.jobs.enqueue(jobs)
    backend._parts.here.server.clock.advance(2)  # type: ignore[union-attr]
    assert (await backend.jobs.promote(len(jobs))).moved == len(jobs)
    found = [job.id for _ in range(40) for job in await claim(backend, 100)]
    await backend.queues.limit(LimitKey("queue", "queue 0"), Limit(running=MANY))
    found += [job.id for _ in range(40) for job in await claim(backend, 100)]
    assert found == [job.id for job in jobs]


async def _large_payloads(backend: RedisBackend) -> None:
    payload = f'"{"x" * 100_000}"'
    assert await backend.jobs.enqueue([a_job(payload=payload) for _ in range(300)]) == [True] * 300
    for _ in "ab":
        some = [unique(f"key-{number}", OnConflict.REPLACE) for number in range(100)]
        await backend.jobs.enqueue([msgspec.structs.replace(job, payload=payload) for job in some])
    assert len(await drained(backend)) == 400


WORKLOADS = {
    "a graph of 10,000 jobs": _graph_of_10_000,
    "10,000 unique jobs": _unique_10_000,
    "5,000 children of one job": _children_of_one,
    "one child of 5,000 jobs": _parents_of_one,
    "20 families of 500": _families_that_are_deleted,
    "80 queues with 300 completed jobs, pruned": _many_lanes_that_are_pruned,
    "8,000 jobs of 80 queues, due at once": _many_lanes_that_are_due_at_once,
    "400 jobs with 100 kB each, 100 of them replaced": _large_payloads,
}
MOST = 15.0  # ms of the server's CPU time; as one script, such calls took 81 to 132 ms


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("workload", WORKLOADS)
async def test_no_script_keeps_the_server_busy_for_long(
    backend: RedisBackend, monkeypatch: pytest.MonkeyPatch, url: str, workload: str
):
    longest = timing(monkeypatch, url)
    await WORKLOADS[workload](backend)
    figures = ", ".join(f"{name} {took:.1f}" for name, took in sorted(longest.items(), key=lambda each: -each[1]))
    print(f"{workload}, longest scripts in ms: {figures}")  # noqa: T201 - the figures of the documentation
    assert max(longest.values()) < MOST, figures
    check_whole(url)
