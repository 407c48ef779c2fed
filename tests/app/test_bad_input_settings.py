"""Tasks and workers that cannot work are refused when they are made, with the remedy."""

from __future__ import annotations

import asyncio
import functools
from datetime import timedelta

import pytest
from tests.app.work import run_all

from holdfast import (
    App,
    ByException,
    ConfigError,
    Context,
    Exponential,
    Fixed,
    JobState,
    Linear,
    TaskNotFound,
    Worker,
)


async def noop() -> None: ...


def plain() -> None: ...


@pytest.mark.parametrize(
    ("settings", "remedy"),
    [
        ({"max_attempts": 0}, "a whole number from 1 to"),
        ({"max_attempts": "5"}, "a whole number from 1 to"),
        ({"max_attempts": False}, "a whole number from 1 to"),
        ({"priority": 100_001}, "a whole number from -100000 to 100000"),
        ({"priority": 1.5}, "a whole number from -100000 to 100000"),
        ({"timeout": 0}, "pass seconds, or None for no limit"),
        ({"timeout": timedelta(seconds=-1)}, "a duration cannot be negative"),
        ({"timeout": float("inf")}, "pass less"),
        ({"retry": "often"}, "pass seconds, a timedelta, a policy such as Exponential"),
        ({"retry": -1}, "a duration cannot be negative"),
        ({"retry": Exponential}, "pass an instance of it"),
        ({"retry": noop}, "pass a plain function"),
        ({"executor": "fiber"}, "choose one of 'loop', 'thread', 'process', or leave it out"),
        ({"executor": "thread"}, "needs a plain function"),
        ({"queue": "a b"}, "start with an ASCII letter or an underscore"),
        ({"queue": None}, "is not a string"),
    ],
)
async def test_a_setting_of_a_task_that_cannot_work_is_refused_with_the_remedy(app, settings, remedy):
    with pytest.raises(ConfigError, match=remedy):
        app.task(**settings)(noop)

    assert app.tasks.names == ()


@pytest.mark.parametrize(
    ("make", "remedy"),
    [
        (lambda: Fixed(-1), "cannot be negative"),
        (lambda: Linear(10, cap=1), "raise it"),
        (lambda: Exponential(1, 0.5), "from 1 to 1000"),
        (lambda: Exponential(1, jitter="some"), "pass one of 'full', 'equal', 'none'"),  # type: ignore[arg-type]
        (lambda: ByException({"OSError": 1}), "is not an exception class"),  # type: ignore[dict-item]
    ],
)
def test_a_retry_policy_that_cannot_work_is_refused_with_the_remedy(make, remedy):
    with pytest.raises(ConfigError, match=remedy):
        make()


async def test_a_name_that_is_not_given_by_name_is_told_how(app):
    with pytest.raises(ConfigError, match=r"@app\.task\('charge'\): pass .* as in name='charge'"):
        app.task("charge")
    with pytest.raises(ConfigError, match=r"@app\.task\(3\): not a function"):
        app.task(3)

    assert app.tasks.names == ()


async def test_a_plain_function_cannot_run_in_the_loop(app):
    with pytest.raises(ConfigError, match="would block the event loop"):
        app.task(executor="loop")(plain)


async def test_a_partial_has_no_place_where_a_child_process_would_find_it(app):
    app.task(name="bound")(functools.partial(plain))

    assert app.tasks.get("bound").reference is None
    with pytest.raises(ConfigError, match=r"task 'other': partial .* a child process cannot import it"):
        app.task(name="other", executor="process")(functools.partial(plain))
    with pytest.raises(ConfigError, match=r"task 'bound' is already registered \(functools\.partial\)"):
        app.task(name="bound")(functools.partial(plain))


async def test_a_nested_function_cannot_run_in_a_process(app):
    def nested() -> None: ...

    with pytest.raises(ConfigError, match=r'move it to the top of a module, or leave out executor="process"'):
        app.task(executor="process")(nested)
    with pytest.raises(ConfigError, match="cannot import it: move it to the top of a module"):
        app.task(executor="process", name="anonymous")(lambda: None)

    assert app.task(executor="process")(plain).name == "plain"


async def test_two_tasks_of_one_name_are_refused_and_the_first_stays(app):
    first = app.task(name="send")(noop)

    with pytest.raises(ConfigError, match=r"task 'send' is already registered \(.*noop\).*another name"):
        app.task(name="send")(plain)

    assert app.tasks.get("send") is first.task


async def test_a_handler_whose_parameters_cannot_be_decoded_is_refused(app):
    async def takes_a_connection(connection: asyncio.AbstractEventLoop) -> None: ...

    with pytest.raises(ConfigError, match="pass an id and load the object in the handler"):
        app.task(takes_a_connection)


async def test_a_handler_that_takes_the_context_twice_is_refused(app):
    async def greedy(one: Context, two: Context) -> None: ...

    with pytest.raises(ConfigError, match="remove one"):
        app.task(greedy)


async def test_a_worker_without_tasks_is_refused(app):
    with pytest.raises(ConfigError, match=r"register tasks with @app\.task before it runs"):
        app.worker()
    with pytest.raises(TaskNotFound, match=r"register one with @app\.task, or pass tasks="):
        await app.claim("default")
    with pytest.raises(ConfigError, match=r"register tasks with @app\.task"):
        await app.drain("default")


@pytest.mark.parametrize(
    ("settings", "remedy"),
    [
        ({"concurrency": 0}, "pass at least 1"),
        ({"concurrency": -3}, "pass at least 1"),
        ({"concurrency": "10"}, "Expected `int`, got `str` for `concurrency`"),
        ({"concurrency": 2.5}, "Expected `int`, got `float` for `concurrency`"),
        ({"poll_interval": None}, "poll_interval is None, not a duration"),
        ({"lease": 0}, "pass seconds, more than 0"),
        ({"lease": -5}, "a duration cannot be negative"),
        ({"lease": "30s"}, "pass seconds as a number, or a timedelta"),
        ({"extend_at": 1.5}, "pass a fraction of the lease above 0 and up to 0.55"),
        ({"extend_at": 0}, "pass a fraction of the lease above 0"),
        ({"poll_interval": 0}, "pass seconds, more than 0"),
        ({"poll_interval": float("nan")}, "pass seconds as a finite number"),
        ({"drain_timeout": -1}, "a duration cannot be negative, pass 0 or more"),
        ({"queues": "a"}, r"pass a list, as in queues=\['a'\]"),
        ({"queues": []}, "name some, or leave it out for every queue"),
        ({"queues": [7]}, "is not a string"),
        ({"worker_id": "two words"}, "start with an ASCII letter or an underscore"),
        ({"lease_seconds": 30}, "there is no setting lease_seconds: there are worker_id, lease, extend_at"),
        ({"rescue_every": 60}, "at most 6 s, or leave it out"),
        ({"stuck_grace": "long"}, "stuck_grace is 'long', not a duration"),
        ({"worker_class": dict}, "derive it from that"),
        ({"worker_class": Worker.run}, "derive it from that"),
    ],
)
async def test_a_setting_of_a_worker_that_cannot_work_is_refused_with_the_remedy(app, settings, remedy):
    app.task(noop)

    with pytest.raises(ConfigError, match=remedy):
        app.worker(**settings)


async def test_sync_inside_a_running_loop_is_refused_and_nothing_is_enqueued(app):
    task = app.task(noop)

    for call in (
        task.sync.enqueue,
        app.queues.sync.list,
        app.sync.leases,
        lambda: app.jobs.sync.show("x"),
        app.job("x").sync.wait,
    ):
        with pytest.raises(ConfigError, match=r"await the call without `\.sync`"):
            call()

    assert (await app.jobs.list("ready")).jobs == []


async def test_sync_on_the_context_of_an_async_handler_fails_the_attempt_with_the_remedy(app: App):
    @app.task(max_attempts=1)
    async def asks(ctx: Context, what: str) -> None:
        if what == "progress":
            ctx.sync.progress(10)
        elif what == "extend":
            ctx.sync.extend()
        else:
            with ctx.sync.transaction():
                pass

    jobs = [await asks.enqueue(what=what) for what in ("progress", "extend", "transaction")]
    await run_all(app)

    for job in jobs:
        details = await job.details()
        assert details.job.state is JobState.FAILED
        assert "in an `async def`, await ctx itself" in str(details.attempts[-1].message)


@pytest.mark.parametrize("percent", [-1, 101, float("nan")])
async def test_progress_outside_of_percent_is_refused(app: App, percent):
    seen: list[str] = []

    @app.task
    async def reports(ctx: Context) -> None:
        try:
            await ctx.progress(percent)
        except ConfigError as error:
            seen.append(str(error))

    await reports.enqueue()
    await run_all(app)

    assert len(seen) == 1
    assert "from 0 to 100" in seen[0]
