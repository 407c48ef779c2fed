"""Queued effects: commands of handlers are applied together with the ends of their jobs, or not at all."""

# ruff: noqa: D102, PT012 - a test's name is its sentence; what a transaction raises is raised out of its block

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from contextvars import Context as ContextVars
from datetime import timedelta
from typing import Any, ClassVar

import pytest

from holdfast.errors import ConfigError, JobNotFound, LeaseLost, StoreError, TransactionConflict, Unsupported
from holdfast.model.job import JobState, LeasedJob
from holdfast.model.outcome import Completed, Retried
from holdfast.store.backend import Backend
from holdfast.store.values import Finish, Standing, Verdict
from holdfast.testing.clock import ManualClock
from holdfast.testing.conformance.base import (
    FAILURE,
    LEASE,
    MANY,
    Conformance,
    a_job,
    claim,
    claim_one,
    enqueue,
    finish,
    hold_one,
    state_of,
)
from holdfast.testing.conformance.parents import after
from holdfast.testing.conformance.unique import unique

LIMIT = timedelta(seconds=10)
RETRIED = Retried(timedelta(seconds=5), FAILURE)
DONE, LOST = Verdict.DONE, Verdict.LOST


async def seen(backend: Backend, *words: Any) -> Any:
    """Return what a reading command replies now; the key, the second word, is one of the store's place."""
    await enqueue(backend, a_job("looking", task="looking"))
    (job,) = await claim(backend, 1, tasks=["looking"])
    async with backend.transactions.begin(job.lease, limit=LIMIT) as transaction:
        reply = await transaction.connection.read(words[0], transaction.connection.key(words[1]), *words[2:])
    await finish(backend, job.lease, Completed())
    return reply


async def put(backend: Backend, *words: Any) -> None:
    """Run a writing command for itself."""
    await enqueue(backend, a_job("putting", task="putting"))
    (job,) = await claim(backend, 1, tasks=["putting"])
    async with backend.transactions.begin(job.lease, limit=LIMIT) as transaction:
        transaction.connection.queue(words[0], transaction.connection.key(words[1]), *words[2:])
        await transaction.complete(job.lease, None)


def meanwhile(act: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
    """Run what another process does meanwhile: outside the transaction."""
    return asyncio.create_task(act, context=ContextVars())


async def lose(backend: Backend, clock: ManualClock, lost: LeasedJob, kept: Sequence[LeasedJob] = ()) -> None:
    """Let a lease expire, and another worker claim its job; the others are extended before."""
    clock.advance(LEASE - timedelta(seconds=1))
    for job in kept:
        assert await backend.jobs.extend(job.lease, LEASE) is DONE
    clock.advance(timedelta(seconds=2))
    assert [rescued.job_id for rescued in await backend.jobs.rescue(None, MANY)] == [lost.id]
    assert (await claim_one(backend, worker_id="worker-b")).id == lost.id


class QueuesEffects(Conformance):
    """What all classes here need."""

    needs: ClassVar[frozenset[str]] = frozenset({"queues_effects"})


class TestQueuedCommands(QueuesEffects):
    """All or nothing."""

    async def test_nothing_is_written_before_the_end_of_the_block(self, backend: Backend) -> None:
        job = await hold_one(backend)
        async with backend.transactions.begin(job.lease, limit=LIMIT) as transaction:
            connection = transaction.connection
            connection.queue("SET", connection.key("balance"), 100)
            await transaction.complete(job.lease, None)
            assert await connection.read("GET", connection.key("balance")) is None
            assert await backend.jobs.verify(job.lease) is Standing.HELD
        assert await seen(backend, "GET", "balance") == b"100"
        assert await backend.jobs.verify(job.lease) is Standing.COMPLETED

    async def test_commands_are_applied_in_their_order(self, backend: Backend) -> None:
        job = await hold_one(backend)
        async with backend.transactions.begin(job.lease, limit=LIMIT) as transaction:
            connection = transaction.connection
            connection.queue("SET", connection.key("balance"), 100)
            connection.queue("DECRBY", connection.key("balance"), 10)
            connection.queue("RPUSH", connection.key("list"), "a", b"\xff", 1, 0.5)
            await transaction.complete(job.lease, None)
        assert await seen(backend, "GET", "balance") == b"90"
        assert await seen(backend, "LRANGE", "list", 0, -1) == [b"a", b"\xff", b"1", b"0.5"]

    async def test_if_a_command_fails_those_before_it_are_undone_with_their_times_to_live(
        self, backend: Backend
    ) -> None:
        await put(backend, "SET", "text", "no number")
        await put(backend, "SET", "balance", "100", "PXAT", 33_000_000_000_000)
        job, inside = await hold_one(backend), a_job()
        with pytest.raises(StoreError, match=r"HINCRBY.*command 4 of 5"):
            async with backend.transactions.begin(job.lease, limit=LIMIT) as transaction:
                connection = transaction.connection
                connection.queue("DECRBY", connection.key("balance"), 10)
                connection.queue("PERSIST", connection.key("balance"))
                connection.queue("SADD", connection.key("new"), "member")
                connection.queue("HINCRBY", connection.key("text"), "field", 1)
                connection.queue("SET", connection.key("never"), 1)
                await backend.jobs.enqueue([inside])
                await transaction.complete(job.lease, None)
        assert await seen(backend, "GET", "balance") == b"100"
        assert await seen(backend, "PEXPIRETIME", "balance") == 33_000_000_000_000
        assert await seen(backend, "GET", "text") == b"no number"
        assert await seen(backend, "EXISTS", "new") == await seen(backend, "EXISTS", "never") == 0
        with pytest.raises(JobNotFound):
            await backend.insight.job(inside.id)
        assert await finish(backend, job.lease, Completed()) is DONE

    async def test_keys_that_one_command_names_are_all_undone(self, backend: Backend) -> None:
        await put(backend, "SADD", "from", "member")
        await put(backend, "SET", "text", "no number")
        job = await hold_one(backend)
        with pytest.raises(StoreError):
            async with backend.transactions.begin(job.lease, limit=LIMIT) as transaction:
                connection = transaction.connection
                connection.queue("SMOVE", connection.key("from"), connection.key("to"), "member")
                connection.queue("MSET", connection.key("one"), 1, connection.key("two"), 2)
                connection.queue("INCR", connection.key("text"))
        assert await seen(backend, "SMEMBERS", "from") == [b"member"]
        assert [await seen(backend, "EXISTS", name) for name in ("to", "one", "two")] == [0, 0, 0]

    async def test_a_single_command_that_fails_writes_nothing(self, backend: Backend) -> None:
        await put(backend, "SET", "text", "no number")
        job = await hold_one(backend)
        with pytest.raises(StoreError, match="INCR"):
            async with backend.transactions.begin(job.lease, limit=LIMIT) as transaction:
                transaction.connection.queue("INCR", transaction.connection.key("text"))
                await transaction.complete(job.lease, None)
        assert await backend.jobs.verify(job.lease) is Standing.HELD

    @pytest.mark.parametrize("completes", [True, False])
    async def test_a_fence_that_is_stale_at_the_end_changes_nothing(
        self, backend: Backend, clock: ManualClock, completes: bool
    ) -> None:
        job, inside = await hold_one(backend), a_job(task="other")
        with pytest.raises(LeaseLost):
            async with backend.transactions.begin(job.lease, limit=LIMIT) as transaction:
                transaction.connection.queue("RPUSH", transaction.connection.key("list"), "a")
                await backend.jobs.enqueue([inside])
                if completes:
                    await transaction.complete(job.lease, None)
                await meanwhile(lose(backend, clock, job))
        assert await seen(backend, "EXISTS", "list") == 0
        assert await state_of(backend, job.id) is JobState.RUNNING
        with pytest.raises(JobNotFound):
            await backend.insight.job(inside.id)

    async def test_the_job_of_a_transaction_that_completes_nothing_continues(self, backend: Backend) -> None:
        job, inside = await hold_one(backend), a_job()
        for _ in range(2):
            async with backend.transactions.begin(job.lease, limit=LIMIT) as transaction:
                transaction.connection.queue("INCR", transaction.connection.key("steps"))
                await backend.jobs.enqueue([inside])
        assert await seen(backend, "GET", "steps") == b"2"
        assert await backend.jobs.verify(job.lease) is Standing.HELD
        assert await state_of(backend, inside.id) is JobState.READY

    async def test_it_reads_queues_and_completes_in_a_thread(self, backend: Backend) -> None:
        await put(backend, "SET", "balance", 100)
        job = await hold_one(backend)

        def handler() -> None:
            with backend.transactions.begin_blocking(job.lease, limit=LIMIT) as transaction:
                connection = transaction.connection
                assert connection.read("GET", connection.key("balance")) == b"100"
                connection.queue("DECRBY", connection.key("balance"), 10)
                assert transaction.complete(job.lease, None) is DONE

        await asyncio.to_thread(handler)
        assert await seen(backend, "GET", "balance") == b"90"
        assert await backend.jobs.verify(job.lease) is Standing.COMPLETED

    async def test_progress_and_an_extension_in_the_block_do_not_disturb_it(self, backend: Backend) -> None:
        job = await hold_one(backend)
        async with backend.transactions.begin(job.lease, limit=LIMIT) as transaction:
            transaction.connection.queue("INCR", transaction.connection.key("steps"))
            assert await transaction.finish([Finish(job.lease, RETRIED)]) == [DONE]
            assert await backend.jobs.progress(job.lease, 50, "half") is DONE
            assert await backend.jobs.extend(job.lease, LEASE * 2) is DONE
        assert await seen(backend, "GET", "steps") == b"1"
        assert await state_of(backend, job.id) is JobState.SCHEDULED


class TestReads(QueuesEffects):
    """What a handler has read is true when its effect is written."""

    async def test_a_reply_that_has_changed_is_a_conflict_and_changes_nothing(self, backend: Backend) -> None:
        await put(backend, "SET", "balance", 100)
        job = await hold_one(backend)
        with pytest.raises(TransactionConflict, match="GET"):
            async with backend.transactions.begin(job.lease, limit=LIMIT) as transaction:
                connection = transaction.connection
                assert await connection.read("GET", connection.key("balance")) == b"100"
                connection.queue("SET", connection.key("balance"), 90)
                await transaction.complete(job.lease, None)
                await meanwhile(put(backend, "SET", "balance", 50))
        assert await seen(backend, "GET", "balance") == b"50"
        assert await backend.jobs.verify(job.lease) is Standing.HELD

    async def test_a_reply_that_is_the_same_is_none(self, backend: Backend) -> None:
        for words in (("SET", "text", "a"), ("RPUSH", "list", "a", "b"), ("HSET", "hash", "a", 1), ("SADD", "set", 1)):
            await put(backend, *words)
        job = await hold_one(backend)
        async with backend.transactions.begin(job.lease, limit=LIMIT) as transaction:
            key, read = transaction.connection.key, transaction.connection.read
            assert await read("MGET", key("text"), key("none")) == [b"a", None]
            assert await read("LRANGE", key("list"), 0, -1) == [b"a", b"b"]
            assert await read("LLEN", key("list")) == 2
            assert await read("HGETALL", key("hash")) == [b"a", b"1"]
            assert await read("ZSCORE", key("none"), "a") is None
            assert await read("LRANGE", key("none"), 0, -1) == []
            assert await read("TYPE", key("set")) == b"set"
            transaction.connection.queue("APPEND", key("text"), "b")
            await transaction.complete(job.lease, None)
        assert await seen(backend, "GET", "text") == b"ab"

    @pytest.mark.parametrize(
        ("before", "read", "after"),
        [
            (None, ("LRANGE", "x", 0, -1), ("SET", "x", "of another type")),
            (None, ("EXISTS", "x"), ("SET", "x", "")),
            (("SET", "x", "1"), ("GET", "x"), ("DEL", "x")),
            (("HSET", "x", "a", "1", "b", "2"), ("HMGET", "x", "a", "b"), ("HSET", "x", "b", "3")),
            (("RPUSH", "x", "ab", "c"), ("LRANGE", "x", 0, -1), ("LSET", "x", 0, "abc")),
        ],
    )
    async def test_every_kind_of_reply_is_compared(
        self, backend: Backend, before: tuple[Any, ...] | None, read: tuple[Any, ...], after: tuple[Any, ...]
    ) -> None:
        if before is not None:
            await put(backend, *before)
        job = await hold_one(backend)
        with pytest.raises(TransactionConflict):
            async with backend.transactions.begin(job.lease, limit=LIMIT) as transaction:
                await transaction.connection.read(read[0], transaction.connection.key(read[1]), *read[2:])
                await meanwhile(put(backend, *after))


class TestJobsInside(QueuesEffects):
    """Jobs that are enqueued in the block, and other calls."""

    async def test_an_answer_that_is_no_longer_true_is_a_conflict(self, backend: Backend) -> None:
        job, first, second = await hold_one(backend), unique(task="other"), unique(task="other")
        with pytest.raises(TransactionConflict):
            async with backend.transactions.begin(job.lease, limit=LIMIT) as transaction:
                assert await backend.jobs.enqueue([first]) == [True]
                await transaction.complete(job.lease, None)
                await meanwhile(enqueue(backend, second))
        assert await backend.jobs.verify(job.lease) is Standing.HELD
        assert await state_of(backend, second.id) is JobState.READY
        with pytest.raises(JobNotFound):
            await backend.insight.job(first.id)

    async def test_the_same_id_is_enqueued_once(self, backend: Backend) -> None:
        job, inside = await hold_one(backend), a_job(task="other")
        async with backend.transactions.begin(job.lease, limit=LIMIT) as transaction:
            assert await backend.jobs.enqueue([inside]) == [True]
            assert await backend.jobs.enqueue([inside]) == [False]
            await transaction.complete(job.lease, None)
        assert [each.id for each in await claim(backend, tasks=["other"])] == [inside.id]

    async def test_a_job_can_be_enqueued_after_one_of_an_earlier_call(self, backend: Backend) -> None:
        job, parent = await hold_one(backend), a_job(task="other")
        child = after(parent.id)
        async with backend.transactions.begin(job.lease, limit=LIMIT) as transaction:
            assert await backend.jobs.enqueue([parent]) == [True]
            assert await backend.jobs.enqueue([child]) == [True]
            await transaction.complete(job.lease, None)
        assert [await state_of(backend, each.id) for each in (parent, child)] == [JobState.READY, JobState.BLOCKED]

    @pytest.mark.parametrize("outcome", [Completed(), RETRIED])
    async def test_a_child_of_the_job_itself_is_decided_after_the_end(
        self, backend: Backend, outcome: Completed | Retried
    ) -> None:
        job = await hold_one(backend)
        child = after(job.id)
        async with backend.transactions.begin(job.lease, limit=LIMIT) as transaction:
            assert await backend.jobs.enqueue([child]) == [True]
            await transaction.finish([Finish(job.lease, outcome)])
        await backend.jobs.promote(MANY)
        if outcome is RETRIED:
            assert await state_of(backend, child.id) is JobState.BLOCKED
            assert await backend.jobs.retry(job.id) is False
            await backend.jobs.cancel(job.id, "unwanted")
            assert await state_of(backend, child.id) is JobState.CANCELLED
        else:
            assert transaction.concerns_children
            assert await state_of(backend, child.id) is JobState.READY

    async def test_calls_that_end_or_change_other_jobs_are_refused(self, backend: Backend) -> None:
        job, (other,) = await hold_one(backend), await enqueue(backend, a_job(task="other"))
        async with backend.transactions.begin(job.lease, limit=LIMIT):
            with pytest.raises(Unsupported, match="before the block"):
                await backend.jobs.cancel(other, "unwanted")
            with pytest.raises(Unsupported):
                await backend.jobs.finish([Finish(job.lease, Completed())])
        assert await state_of(backend, other) is JobState.READY


class TestRefusedCommands(QueuesEffects):
    """What is refused, with nothing queued."""

    @pytest.mark.parametrize(
        "words",
        [
            *(("EVAL", "return 1", 0), ("EVALSHA", "0" * 40, 0), ("FCALL", "f", 0), ("SCRIPT", "FLUSH")),
            *(("BLPOP", "list", 0), ("BRPOPLPUSH", "a", "b", 0), ("WAIT", 1, 0), ("XREADGROUP", "GROUP", "g", "c")),
            *(("MULTI",), ("EXEC",), ("WATCH", "a"), ("SELECT", 1), ("AUTH", "x"), ("HELLO", 3), ("CLIENT", "LIST")),
            *(("PUBLISH", "a", "b"), ("SUBSCRIBE", "a"), ("SPUBLISH", "a", "b")),
            *(("KEYS", "*"), ("SCAN", 0), ("DBSIZE",), ("RANDOMKEY",), ("SORT", "a"), ("FLUSHALL",), ("SWAPDB", 0, 1)),
            *(("CONFIG", "SET", "a", "b"), ("DEBUG", "SLEEP", 1), ("MIGRATE", "a"), ("RESTORE", "a", 0, "b")),
            *((), ("SET",), ("DEL",), ("RPUSH", "list", *(["a"] * 4000)), ("SET", "a", None), ("SET", "a", True)),
        ],
    )
    async def test_commands_that_are_not_allowed(self, backend: Backend, words: tuple[Any, ...]) -> None:
        job = await hold_one(backend)
        async with backend.transactions.begin(job.lease, limit=LIMIT) as transaction:
            with pytest.raises(ConfigError):
                transaction.connection.queue(*words)
            with pytest.raises(ConfigError):
                await transaction.connection.read(*words)
            await transaction.complete(job.lease, None)
        assert await backend.jobs.verify(job.lease) is Standing.COMPLETED

    async def test_a_write_is_queued_and_a_read_is_read(self, backend: Backend) -> None:
        job = await hold_one(backend)
        async with backend.transactions.begin(job.lease, limit=LIMIT) as transaction:
            with pytest.raises(ConfigError, match="read it"):
                transaction.connection.queue("GET", "a")
            with pytest.raises(ConfigError, match="queue it"):
                await transaction.connection.read("SET", "a", 1)

    async def test_too_many_commands_and_bytes(self, backend: Backend) -> None:
        job = await hold_one(backend)
        async with backend.transactions.begin(job.lease, limit=LIMIT) as transaction:
            connection = transaction.connection
            with pytest.raises(ConfigError, match="bytes"):
                connection.queue("SET", connection.key("a"), "x" * 1_000_000)
            connection.queue("SET", connection.key("a"), "x" * 900_000)  # what was refused does not count
        async with backend.transactions.begin(job.lease, limit=LIMIT) as transaction:
            connection = transaction.connection
            for number in range(1000):
                connection.queue("RPUSH", connection.key("list"), number)
            with pytest.raises(ConfigError, match="at most"):
                connection.queue("RPUSH", connection.key("list"), "one more")
            with pytest.raises(ConfigError, match="at most"):
                await connection.read("LLEN", connection.key("list"))
        assert await seen(backend, "LLEN", "list") == 1000

    async def test_too_many_keys(self, backend: Backend) -> None:
        job = await hold_one(backend)
        async with backend.transactions.begin(job.lease, limit=LIMIT) as transaction:
            connection = transaction.connection
            keys = [connection.key(str(number)) for number in range(1001)]
            with pytest.raises(ConfigError, match="keys"):
                connection.queue("DEL", *keys)
            connection.queue("DEL", *keys[:600])
            assert await connection.read("MGET", *keys[:1000]) == [None] * 1000
            for words in (("APPEND", keys[-1], "a"), ("MSET", keys[0], "a", keys[-1], "b")):
                with pytest.raises(ConfigError, match="keys"):
                    connection.queue(*words)
            with pytest.raises(ConfigError, match="keys"):
                await connection.read("GET", keys[-1])
            connection.queue("MSET", *(word for key in keys[:1000] for word in (key, "a")))
            await transaction.complete(job.lease, None)
        assert await seen(backend, "MGET", "0", connection.key("999"), keys[-1]) == [b"a", b"a", None]

    async def test_nothing_can_be_queued_or_read_after_the_block(self, backend: Backend) -> None:
        job = await hold_one(backend)
        async with backend.transactions.begin(job.lease, limit=LIMIT) as transaction:
            await transaction.complete(job.lease, None)
        with pytest.raises(ConfigError):
            transaction.connection.queue("SET", "a", 1)
        with pytest.raises(ConfigError):
            await transaction.connection.read("GET", "a")
