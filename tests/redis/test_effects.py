"""Effects of handlers on Redis: through the worker, over lost replies, large keys, missing rights, a cluster."""

# ruff: noqa: PT012 - what a transaction raises is raised out of its block

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextvars import Context as ContextVars
from typing import Any

import pytest
from redis.exceptions import ConnectionError as RedisConnectionError
from tests.redis.whole import check_whole
from tests.servers.redis import connection_of, own_redis

from holdfast import App, BatchContext, Call, Context
from holdfast.backends.redis.backend import RedisBackend
from holdfast.backends.redis.scripts import EFFECT
from holdfast.backends.redis.steps import ScriptCall
from holdfast.backends.redis.wire import AsyncWire, BlockingWire
from holdfast.errors import ConfigError, OutcomeUnknown, PrivilegeMissing, StoreError, StoreUnavailable, Unsupported
from holdfast.model.job import JobState
from holdfast.model.limits import Limit
from holdfast.model.outcome import Completed
from holdfast.store.values import Standing, Verdict
from holdfast.testing.conformance.base import LEASE, claim_one, enqueue, finish, hold_one, state_of
from holdfast.testing.conformance.key_limits import EACH, keyed
from holdfast.testing.redis_server import Flavour
from holdfast.testing.stores import open_store

WITHIN = 20


@pytest.fixture
async def app(url: str) -> AsyncIterator[App]:
    async with App(url) as app:
        yield app
        check_whole(url)


def _key(app: App, name: str) -> str:
    return f"{{holdfast:{app.backend.url.partition('name=')[2]}}}/{name}"


async def test_handlers_in_the_loop_and_in_threads_write_their_effects_once(app: App, url: str):
    @app.task
    async def pay(ctx: Context, amount: int) -> None:
        async with ctx.transaction() as effects:
            effects.queue("INCRBY", effects.key("total"), amount)
            effects.queue("RPUSH", effects.key("list"), ctx.job.id)
            ctx.result = amount

    @app.task
    def pay_in_a_thread(ctx: Context, amount: int) -> None:
        with ctx.sync.transaction() as effects:
            assert effects.read("EXISTS", effects.key("none")) == 0
            effects.queue("INCRBY", effects.key("total"), amount)
            effects.queue("RPUSH", effects.key("list"), ctx.job.id)
            ctx.result = amount

    async with app.working():
        tasks: list[Any] = [pay, pay_in_a_thread]
        jobs = [await task.enqueue(n) for n in range(10) for task in tasks]
        assert [await job.result(timeout=WITHIN) for job in jobs] == [n for n in range(10) for _ in range(2)]
    client = connection_of(url)
    assert client.get(_key(app, "total")) == b"90"
    assert sorted(client.lrange(_key(app, "list"), 0, -1)) == sorted(job.id.encode() for job in jobs)


async def test_a_conflict_repeats_the_attempt_and_does_not_count(app: App, url: str):
    read = asyncio.Event()

    @app.task(max_attempts=1)
    async def add(ctx: Context) -> None:
        async with ctx.transaction() as effects:
            before = int(await effects.read("GET", effects.key("total")) or 0)
            if before == 0:
                connection_of(url).set(effects.key("total"), 10)
                read.set()
            effects.queue("SET", effects.key("total"), before + 1)
            ctx.result = before + 1

    async with app.working():
        job: Any = await add.enqueue()
        assert await job.result(timeout=WITHIN) == 11
    assert read.is_set()
    assert connection_of(url).get(_key(app, "total")) == b"11"
    assert (await app.jobs.show(job.id)).job.attempt == 1


async def test_a_failing_command_fails_the_attempt_and_the_next_one_writes(app: App, url: str):
    @app.task(retry=0.01)
    async def pay(ctx: Context) -> None:
        async with ctx.transaction() as effects:
            effects.queue("RPUSH", effects.key("list"), ctx.job.attempt)
            effects.queue("INCR", effects.key("text" if ctx.job.attempt == 1 else "number"))

    await app.opened()
    connection_of(url).set(_key(app, "text"), "no number")
    async with app.working():
        job = await pay.enqueue()
        await job.result(timeout=WITHIN)
    assert connection_of(url).lrange(_key(app, "list"), 0, -1) == [b"2"]
    shown = await app.jobs.show(job.id)
    assert "command 2 of 2" in str(shown.attempts[0])


async def test_an_enqueue_in_the_block_joins_from_the_loop_and_from_a_thread(app: App):
    @app.task
    async def receipt(number: int) -> int:
        return number

    @app.task
    async def pay(ctx: Context, number: int) -> None:
        async with ctx.transaction() as effects:
            effects.queue("INCR", effects.key("total"))
            ctx.result = (await receipt.enqueue(number)).id

    @app.task
    def pay_in_a_thread(ctx: Context, number: int) -> None:
        with ctx.sync.transaction() as effects:
            effects.queue("INCR", effects.key("total"))
            ctx.result = receipt.sync.enqueue(number).id

    @app.task(max_attempts=1)
    async def break_off(ctx: Context) -> None:
        async with ctx.transaction():
            await receipt.enqueue(99)
            raise ValueError("no")

    async with app.working():
        tasks: list[Any] = [pay, pay_in_a_thread]
        for number, task in enumerate(tasks):
            job = await task.enqueue(number)
            assert await app.job(str(await job.result(timeout=WITHIN))).result(timeout=WITHIN) == number
        failed = await break_off.enqueue()
        with pytest.raises(Exception, match="no"):
            await failed.result(timeout=WITHIN)
    completed = (await app.jobs.list(JobState.COMPLETED, limit=100)).jobs
    assert [each.task for each in completed].count(receipt.name) == 2


async def test_a_batch_task_writes_all_effects_and_ends_together(app: App, url: str):
    @app.task(batch=20, linger=0.05, retry=0.01)
    async def pay(ctx: BatchContext, calls: list[Call[int]]) -> None:
        async with ctx.transaction() as effects:
            for call in calls:
                if call.argument % 3 == 1 and call.job.attempt == 1:
                    call.retry(0.01)
                    continue
                effects.queue("RPUSH", effects.key("list"), call.argument)
                call.result = call.argument

    await app.opened()
    jobs = [await pay.enqueue(number) for number in range(30)]
    async with app.working():
        assert [await job.result(timeout=WITHIN) for job in jobs] == list(range(30))
    assert sorted(map(int, connection_of(url).lrange(_key(app, "list"), 0, -1))) == list(range(30))


async def test_the_lost_call_of_a_batch_does_not_take_the_others_with_it(app: App, url: str):
    """The lease of one is taken away inside the block, where nothing is locked."""
    sizes: list[int] = []

    @app.task(batch=3, linger=0.2)
    async def pay(ctx: BatchContext, calls: list[Call[int]]) -> None:
        sizes.append(len(calls))
        async with ctx.transaction() as effects:
            for call in calls:
                effects.queue("RPUSH", effects.key("list"), call.argument)
            if len(calls) == 3:
                assert await asyncio.create_task(app.jobs.reset(calls[0].id), context=ContextVars())

    await app.opened()
    jobs = [await pay.enqueue(number) for number in range(3)]
    async with app.working():
        for job in jobs:
            await job.result(timeout=WITHIN)
    assert sizes == [3, 2, 1]
    assert [(await app.jobs.show(job.id)).job.attempt for job in jobs[1:]] == [1, 1]
    assert sorted(map(int, connection_of(url).lrange(_key(app, "list"), 0, -1))) == [0, 1, 2]


@pytest.mark.parametrize("is_written", [True, False])
@pytest.mark.parametrize("blocking", [False, True])
async def test_after_a_lost_reply_the_effect_is_there_once(
    app: App, url: str, monkeypatch: pytest.MonkeyPatch, is_written: bool, blocking: bool
):
    cut: list[int] = []

    @app.task(retry=0.01)
    async def pay(ctx: Context) -> None:
        async with ctx.transaction() as effects:
            effects.queue("RPUSH", effects.key("list"), ctx.job.attempt)

    @app.task(retry=0.01)
    def pay_in_a_thread(ctx: Context) -> None:
        with ctx.sync.transaction() as effects:
            effects.queue("RPUSH", effects.key("list"), ctx.job.attempt)

    call, call_blocking = AsyncWire.call, BlockingWire.call

    async def losing(wire: AsyncWire, asked: ScriptCall, store: bytes) -> Any:
        if asked.script is not EFFECT or cut:
            return await call(wire, asked, store)
        cut.append(1)
        if is_written:
            await call(wire, asked, store)
        raise OutcomeUnknown("the connection broke before the reply")

    def losing_blocking(wire: BlockingWire, asked: ScriptCall, store: bytes, timeout: float | None = None) -> Any:
        if asked.script is not EFFECT or cut:
            return call_blocking(wire, asked, store, timeout)
        cut.append(1)
        if is_written:
            call_blocking(wire, asked, store, timeout)
        raise OutcomeUnknown("the connection broke before the reply")

    monkeypatch.setattr(AsyncWire, "call", losing)
    monkeypatch.setattr(BlockingWire, "call", losing_blocking)
    async with app.working():
        job = await (pay_in_a_thread if blocking else pay).enqueue()
        await job.result(timeout=WITHIN)
    assert connection_of(url).lrange(_key(app, "list"), 0, -1) == [b"1" if is_written else b"2"]
    assert (await app.jobs.show(job.id)).job.attempt == (1 if is_written else 2)


async def test_a_connection_that_breaks_after_the_script_was_sent_leaves_an_unknown_outcome(
    backend: RedisBackend, monkeypatch: pytest.MonkeyPatch
):
    job = await hold_one(backend)
    replies = AsyncWire._replies

    async def lost(wire: AsyncWire, link: Any, commands: Any) -> Any:
        answer = await replies(wire, link, commands)
        if commands[0][1] == EFFECT.sha and not isinstance(answer[0], Exception):  # not: NOSCRIPT
            link.is_busy = True
            raise RedisConnectionError("Connection reset by peer")
        return answer

    with monkeypatch.context() as patch, pytest.raises(OutcomeUnknown):
        patch.setattr(AsyncWire, "_replies", lost)
        async with backend.transactions.begin(job.lease, limit=LEASE) as transaction:
            transaction.connection.queue("INCR", transaction.connection.key("total"))
            await transaction.complete(job.lease, None)
    assert await backend.jobs.verify(job.lease) is Standing.COMPLETED


async def test_a_large_key_is_refused_unless_its_command_is_the_last(backend: RedisBackend, url: str):
    job = await hold_one(backend)
    client: Any = connection_of(url)
    key = backend._parts.here.server.location.prefix.replace("}:", "}/") + "large"
    client.set(key, "x" * 2_000_000)
    with pytest.raises(ConfigError, match="as the last one"):
        async with backend.transactions.begin(job.lease, limit=LEASE) as transaction:
            transaction.connection.queue("APPEND", key, "y")
            transaction.connection.queue("INCR", transaction.connection.key("total"))
    assert client.strlen(key) == 2_000_000
    async with backend.transactions.begin(job.lease, limit=LEASE) as transaction:
        transaction.connection.queue("INCR", transaction.connection.key("total"))
        transaction.connection.queue("APPEND", key, "y")
    assert client.strlen(key) == 2_000_001


async def test_keys_of_the_store_itself_are_refused(backend: RedisBackend, url: str):
    job = await hold_one(backend)
    prefix = backend._parts.here.server.location.prefix
    async with backend.transactions.begin(job.lease, limit=LEASE) as transaction:
        for key in (f"{prefix}meta", f"{prefix}anything", "{holdfast:another}:meta"):
            with pytest.raises(ConfigError, match="belongs to Holdfast"):
                transaction.connection.queue("DEL", key)
            with pytest.raises(ConfigError, match="belongs to Holdfast"):
                transaction.connection.queue("SMOVE", "mine", key, "a")
    check_whole(url)


async def test_pipelines_of_callers_are_refused_with_the_reason_and_the_remedy(app: App, url: str):
    @app.task(max_attempts=1)
    async def pay(ctx: Context) -> None:
        with pytest.raises(Unsupported, match="fence"):
            await ctx.complete(using=connection_of(url).pipeline())

    @app.task(max_attempts=1)
    def pay_in_a_thread(ctx: Context) -> None:
        with pytest.raises(Unsupported, match="fence"):
            ctx.sync.complete(using=connection_of(url).pipeline())

    async with app.working():
        for task in (pay, pay_in_a_thread):
            await (await task.enqueue()).result(timeout=WITHIN)
        with pytest.raises(Unsupported, match=r"ctx\.transaction"):
            await pay.options(using=connection_of(url).pipeline()).enqueue()


async def test_without_the_right_to_a_key_or_to_restore_nothing_is_written():
    with own_redis("valkey") as server:
        client: Any = connection_of(server.url)
        rights = "~{holdfast:*}* &{holdfast:*}* +@read +@write +@scripting +@connection +@pubsub +time +info"
        client.execute_command("ACL", "SETUSER", "app", "on", ">secret", *rights.split(), "-restore")
        url = server.url.replace("redis://", "redis://app:secret@") + "?name=rights"
        async with open_store(url) as backend:
            job = await hold_one(backend)
            with pytest.raises(PrivilegeMissing):
                async with backend.transactions.begin(job.lease, limit=LEASE) as transaction:
                    transaction.connection.queue("INCR", transaction.connection.key("total"))
                    transaction.connection.queue("INCR", "of another program")
            with pytest.raises(PrivilegeMissing, match="RESTORE"):
                async with backend.transactions.begin(job.lease, limit=LEASE) as transaction:
                    transaction.connection.queue("INCR", transaction.connection.key("total"))
                    transaction.connection.queue("INCR", transaction.connection.key("other"))
            assert client.keys("*/*") == []
            async with backend.transactions.begin(job.lease, limit=LEASE) as transaction:
                transaction.connection.queue("INCR", transaction.connection.key("total"))
                await transaction.complete(job.lease, None)
            assert client.get("{holdfast:rights}/total") == b"1"


async def test_with_full_memory_an_effect_is_refused_and_the_job_stays_held(flavour: Flavour):
    with own_redis(flavour) as server:
        client: Any = connection_of(server.url)
        async with open_store(f"{server.url}?name=full") as backend:
            job = await hold_one(backend)
            client.config_set("maxmemory", "1mb")
            with pytest.raises(StoreUnavailable, match="memory is full"):
                async with backend.transactions.begin(job.lease, limit=LEASE) as transaction:
                    transaction.connection.queue("INCR", transaction.connection.key("total"))
                    await transaction.complete(job.lease, None)
            assert client.get("{holdfast:full}/total") is None
            assert await finish(backend, job.lease, Completed()) is Verdict.DONE


async def test_in_a_cluster_keys_must_be_in_the_slot_of_the_store():
    with own_redis("valkey", cluster_enabled="yes") as server:
        client: Any = connection_of(server.url)
        client.execute_command("CLUSTER", "ADDSLOTSRANGE", 0, 16383)
        deadline = time.monotonic() + 30
        while b"cluster_state:ok" not in client.execute_command("CLUSTER", "INFO"):
            assert time.monotonic() < deadline
            await asyncio.sleep(0.02)
        async with open_store(f"{server.url}?name=spread") as backend:
            job = await hold_one(backend)
            with pytest.raises(ConfigError, match="hash slot"):
                async with backend.transactions.begin(job.lease, limit=LEASE) as transaction:
                    transaction.connection.queue("INCR", transaction.connection.key("total"))
                    transaction.connection.queue("INCR", "elsewhere")
            async with backend.transactions.begin(job.lease, limit=LEASE) as transaction:
                transaction.connection.queue("INCR", transaction.connection.key("total"))
                transaction.connection.queue("INCR", transaction.connection.key("other"))
                await transaction.complete(job.lease, None)
            assert await state_of(backend, job.id) is JobState.COMPLETED
        assert client.get("{holdfast:spread}/other") == b"1"


@pytest.mark.parametrize("blocking", [False, True])
async def test_an_effect_that_ends_a_job_of_a_limit_key_admits_the_next(
    backend: RedisBackend, url: str, blocking: bool
):
    await backend.queues.limit(EACH, Limit(running=1))
    _, second = await enqueue(backend, keyed(), keyed())
    job = await claim_one(backend)
    third = keyed()
    if blocking:

        def act() -> None:
            with backend.transactions.begin_blocking(job.lease, limit=LEASE) as transaction:
                transaction.connection.queue("INCR", transaction.connection.key("total"))
                transaction.complete(job.lease, None)

        await asyncio.to_thread(act)
        await backend.jobs.enqueue([third])
    else:
        async with backend.transactions.begin(job.lease, limit=LEASE) as transaction:
            transaction.connection.queue("INCR", transaction.connection.key("total"))
            assert await backend.jobs.enqueue([third]) == [True]
            await transaction.complete(job.lease, None)
    states = [await state_of(backend, each) for each in (job.id, second, third.id)]
    assert states == [JobState.COMPLETED, JobState.READY, JobState.BLOCKED]
    check_whole(url)


async def test_an_error_of_a_read_is_raised_at_once(backend: RedisBackend):
    job = await hold_one(backend)
    async with backend.transactions.begin(job.lease, limit=LEASE) as transaction:
        transaction.connection.queue("SET", transaction.connection.key("text"), 1)
    async with backend.transactions.begin(job.lease, limit=LEASE) as transaction:
        with pytest.raises(StoreError, match="WRONGTYPE"):
            await transaction.connection.read("LLEN", transaction.connection.key("text"))
