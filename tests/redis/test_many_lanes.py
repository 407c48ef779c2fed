"""A store with very many queues, or order keys: what concerns all of them takes several short steps."""

from __future__ import annotations

from typing import Any

import pytest
from tests.redis.ending import acting_before
from tests.redis.whole import check_whole
from tests.servers.redis import own_store

from holdfast.backends.redis import queue_lists
from holdfast.backends.redis.backend import RedisBackend
from holdfast.backends.redis.scripts import READ
from holdfast.backends.redis.steps import AT_ONCE, ScriptCall
from holdfast.backends.redis.wire import AsyncWire
from holdfast.model.ids import new_id
from holdfast.model.job import NewJob
from holdfast.model.limits import Limit, LimitKey
from holdfast.model.outcome import Completed
from holdfast.store.values import Finish, Retention
from holdfast.testing.conformance.base import a_job, claim, enqueue
from holdfast.testing.stores import open_store

QUEUES = 600


def _commands(words: list[object]) -> int:
    at = number = 0
    while at < len(words):
        at, number = at + 1 + int(str(words[at])), number + 1
    return number


async def test_no_step_reads_all_lanes_but_that_which_looks_whether_jobs_are_left(monkeypatch: pytest.MonkeyPatch):
    sizes: list[int] = []
    call = AsyncWire.call

    async def noted(wire: AsyncWire, asked: ScriptCall, store: bytes) -> object:
        if asked.script is READ:
            sizes.append(_commands(list(asked.words)))
        return await call(wire, asked, store)

    with own_store("valkey") as url:
        async with open_store(f"{url}&completed_bytes=1000") as backend:
            names = [f"queue {number:03}" for number in range(QUEUES)]
            await backend.jobs.enqueue([a_job(name) for name in (*names, names[-1])])
            await backend.queues.limit(LimitKey("queue", names[-1]), Limit(running=1))
            monkeypatch.setattr(AsyncWire, "call", noted)
            jobs = await claim(backend, limit=2 * QUEUES)
            assert [job.queue for job in jobs] == names
            await backend.jobs.finish([Finish(job.lease, Completed()) for job in jobs[:500]])
            seen = {queue.name: (queue.ready, queue.running) for queue in await backend.insight.queues()}
            assert seen == {name: (int(name == names[-1]), int(name >= names[500])) for name in names}
            assert [use.running for use in await backend.insight.limits()] == [1]
            assert await backend.jobs.prune(Retention(), 1000) > 400
            assert max(sizes) <= AT_ONCE + 3
            sizes.clear()
            left = await backend.jobs.outstanding(["greet"], None)
            assert (left.ready, left.running, max(sizes) > 5 * QUEUES) == (1, 100, True)
        check_whole(url)


async def test_jobs_behind_the_heads_of_many_order_keys_are_counted_page_by_page(monkeypatch: pytest.MonkeyPatch):
    pages: list[int] = []
    add = queue_lists._add_behind

    def noted(rows: Any, key_sets: Any, behind: Any) -> Any:
        pages.append(len(key_sets))
        return add(rows, key_sets, behind)

    monkeypatch.setattr(queue_lists, "_add_behind", noted)
    monkeypatch.setattr(queue_lists, "_KEY_SETS", 50)
    with own_store("valkey") as url:
        async with open_store(url) as backend:
            keys = [f"key {number % 300}" for number in range(900)]
            await backend.jobs.enqueue(
                [NewJob(id=new_id(), queue="default", task="greet", payload="{}", order_key=key) for key in keys]
            )
            left = await backend.jobs.outstanding(["greet"], None)
            assert (left.ready, left.blocked, sum(pages)) == (300, 600, 300)
            assert max(pages) < 300


@pytest.mark.parametrize("number", range(1, 5))
async def test_a_queue_that_is_added_in_the_middle_of_a_list_is_in_it_or_in_the_next(
    backend: RedisBackend, number: int, monkeypatch: pytest.MonkeyPatch
):
    await enqueue(backend, a_job("first"))

    async def add() -> None:
        await enqueue(backend, a_job("second"))

    with monkeypatch.context() as patch:
        acting_before(patch, number, add)
        found = {queue.name for queue in await backend.insight.queues()}
    await add()
    assert found in ({"first"}, {"first", "second"})
    assert {queue.name for queue in await backend.insight.queues()} == {"first", "second"}
