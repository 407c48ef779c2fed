"""What lies damaged in the store hurts its own job alone: that one backs off and fails, the others run."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.app.work import ended, run_all, working

from holdfast import App, Context, Fixed, JobHandle, JobState, PayloadError

DAMAGED_PAYLOADS = [
    "'not json'",
    "''",
    "'{}'",
    "'[[],{}]'",
    """'[[],{"n":"seven"}]'""",
    """'[[],{"n":1,"extra":2}]'""",
    """'[[1,2,3],{}]'""",
    "'null'",
    "'[[], {\"n\": ' || zeroblob(2)",
    "cast(x'fffe' as text)",
    "cast(x'eda080' as text)",  # a surrogate in UTF-8's clothes
    "'a' || char(0) || 'b'",
    "replace(hex(zeroblob(150000)), '00', '[[')",
    "'[[],{\"n\":' || replace(hex(zeroblob(50000)), '00', '[')",
    "replace(hex(zeroblob(10000000)), '0', 'x')",
]
DAMAGED_HEADERS = [
    "'not json'",
    "''",
    "'[1, 2]'",
    "'7'",
    "'null'",
    """'{"a": 7}'""",
    """'{"a": {"b": "c"}}'""",
    "cast(x'fffe' as text)",
    """cast(x'7b2261223a22ff227d' as text)""",
    "'a' || char(0) || 'b'",
]


@pytest.fixture
def ran() -> list[int]:
    return []


@pytest.fixture
def count(app: App, ran: list[int]):
    @app.task(max_attempts=3, retry=Fixed(0.01))
    async def count(n: int) -> None:
        ran.append(n)

    return count


async def damage(app: App, job: JobHandle, column: str, value: str) -> None:
    """Write a value, given as SQL, into the row of a job, from inside a transaction of the store."""

    @app.task(queue="vandals")
    async def vandal() -> None: ...

    await vandal.enqueue()
    (held,) = await app.claim("vandals", tasks=["vandal"])
    async with held.context().transaction() as connection:
        changed = await connection.execute(f"update holdfast_job set {column} = {value} where id = ?", (job.id,))  # noqa: S608
    assert changed.rowcount == 1


@pytest.mark.parametrize("value", DAMAGED_PAYLOADS, ids=lambda value: value[:30])
async def test_a_payload_that_cannot_be_read_backs_off_then_fails_and_others_run_on(app, count, ran, value):
    before = await count.enqueue(n=1)
    broken = await count.enqueue(n=2)
    after = await count.enqueue(n=3)
    await damage(app, broken, "payload", value)

    await run_all(app, concurrency=1)

    assert ran == [1, 3]
    assert [await job.state() for job in (before, after)] == [JobState.COMPLETED] * 2
    view = await app.jobs.list("failed")
    assert [(job.id, job.attempt) for job in view.jobs] == [(broken.id, 3)]


@pytest.mark.parametrize("value", ["'not json'", "'[[],{}]'"])
async def test_each_try_to_read_a_payload_leaves_a_record_that_says_why(app, count, value):
    broken = await count.enqueue(n=2)
    await damage(app, broken, "payload", value)

    await run_all(app)

    details = await broken.details()
    assert [attempt.outcome for attempt in details.attempts] == ["retried", "retried", "failed"]
    assert all("the signature is count(n: int)" in str(attempt.message) for attempt in details.attempts)


@pytest.mark.parametrize("value", DAMAGED_HEADERS, ids=lambda value: value[:30])
async def test_headers_that_cannot_be_read_block_nobody(app, count, ran, value):
    broken = await count.options(headers={"a": "b"}).enqueue(n=2)
    whole = await count.options(headers={"c": "d"}).enqueue(n=3)
    await damage(app, broken, "headers", value)

    await run_all(app, concurrency=1)

    assert 3 in ran
    assert await whole.state() is JobState.COMPLETED
    assert (await broken.details()).job.state in {JobState.COMPLETED, JobState.FAILED}


async def test_a_repaired_payload_runs_when_a_person_sends_it_back(app, count, ran):
    broken = await count.enqueue(n=2)
    await damage(app, broken, "payload", "'oops'")
    await run_all(app)
    assert await broken.state() is JobState.FAILED

    await damage_repair(app, broken)
    assert await app.jobs.retry(broken.id)
    await run_all(app)

    assert ran == [2]
    assert await broken.state() is JobState.COMPLETED


async def damage_repair(app: App, job: JobHandle) -> None:
    await app.enqueue("vandal")
    (held,) = await app.claim("vandals", tasks=["vandal"])
    async with held.context().transaction() as connection:
        await connection.execute("update holdfast_job set payload = '[[],{\"n\":2}]' where id = ?", (job.id,))


async def test_a_task_that_a_worker_does_not_know_waits_for_one_that_does(app, count, ran):
    ours = await count.enqueue(n=1)
    theirs = await app.task(name="of_the_next_version")(_noop).enqueue()
    del app.tasks._by_name["of_the_next_version"]

    await run_all(app)

    assert await ours.state() is JobState.COMPLETED
    assert (await theirs.details()).job.state is JobState.READY
    assert (await theirs.details()).job.attempt == 0


async def _noop() -> None: ...


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (object(), "object cannot be encoded as JSON"),
        (float("nan"), "pass a finite number"),
        ({1, 2}, "a set would arrive as a list"),
        ("x" * 300_000, "more than the limit of 262,144"),
        ("a\0b", "NUL"),
        ("\ud800", "lone surrogate"),
        (lambda: None, "cannot be encoded"),
    ],
    ids=["object", "nan", "set", "large", "nul", "surrogate", "function"],
)
@pytest.mark.parametrize("how", ["async", "thread", "transaction", "held"])
async def test_a_result_that_cannot_be_kept_does_not_undo_the_work_and_reading_it_says_why(app, value, reason, how):
    results: dict[str, Any] = {"x": value}
    job = await _answering(app, results, how).enqueue()

    if how == "held":
        (held,) = await app.claim("default")
        await held.complete(value)
    else:
        await run_all(app)

    assert await job.state() is JobState.COMPLETED
    assert (await job.details()).job.attempt == 1
    with pytest.raises(PayloadError, match=reason):
        await job.result()


def _answering(app: App, results: dict[str, Any], how: str):
    if how == "thread":

        @app.task(name="answers")
        def answers_in_a_thread() -> Any:
            return results["x"]

        return answers_in_a_thread

    @app.task(name="answers")
    async def answers(ctx: Context) -> Any:
        if how == "transaction":
            async with ctx.transaction():
                ctx.result = results["x"]
        return results["x"]

    return answers


class Hostile(Exception):  # noqa: N818
    """An exception that does not want to be described."""

    def __str__(self) -> str:
        raise RuntimeError("no")


class Odd(Exception):  # noqa: N818
    """An exception with a name that no store likes."""


Odd.__qualname__ = "Odd\0\ud800\x1b[31m"


@pytest.mark.parametrize(
    ("error", "shown"),
    [
        (ValueError("a\0b"), r"a\x00b"),
        (ValueError("a\ud800b"), r"a\ud800b"),
        (ValueError("\x1b[31mred\x1b[0m"), r"\x1b[31mred"),
        (ValueError("x" * 1_000_000), "xxx"),
        (ValueError("'; drop table holdfast_job; --"), "'; drop table"),
        (Hostile(), "its __str__ raised RuntimeError"),
        (Odd("odd"), "odd"),
        (ValueError(b"\xff\xfe"), "xff"),
        (BaseExceptionGroup("g", [ValueError("a\0b")]), "g (1 sub-exception)"),
    ],
    ids=["nul", "surrogate", "terminal", "huge", "sql", "hostile", "name", "bytes", "group"],
)
@pytest.mark.parametrize("how", ["async", "thread", "held"])
async def test_an_error_of_any_text_is_recorded_as_a_failed_attempt(app, error, shown, how):
    job = await _raising(app, error, how).enqueue()

    if how == "held":
        (held,) = await app.claim("default")
        await held.retry(error)
    else:
        await run_all(app)

    details = await job.details()
    (attempt,) = details.attempts
    assert (details.job.state, attempt.outcome) == (JobState.FAILED, "failed")
    assert shown in str(attempt.message)
    assert "\0" not in str(details)
    assert "\x1b" not in str(attempt)
    assert len(str(attempt.message).encode()) <= 2 * 1024
    assert len(str(attempt.traceback).encode()) <= 8 * 1024
    assert (await app.jobs.list("failed")).jobs[0].id == job.id


def _raising(app: App, error: BaseException, how: str):
    if how == "thread":

        @app.task(name="raises", max_attempts=1)
        def raises_in_a_thread() -> None:
            raise error

        return raises_in_a_thread

    if how == "suspending":

        @app.task(name="raises", max_attempts=1)
        async def raises_after_a_while() -> None:
            await asyncio.sleep(0)
            raise error

        return raises_after_a_while

    @app.task(name="raises", max_attempts=1)
    async def raises() -> None:
        raise error

    return raises


@pytest.mark.parametrize("how", ["async", "suspending", "thread"])
async def test_a_handler_that_exits_ends_its_attempt_and_not_the_worker(app, count, how):
    job = await _raising(app, SystemExit(3), how).enqueue()

    async with working(app):
        assert await ended(job) is JobState.FAILED
        assert await ended(await count.enqueue(n=1)) is JobState.COMPLETED
