"""A forgotten `await` is reported with its line; a call that is awaited later, cancelled or closed is not."""

from __future__ import annotations

import asyncio
import gc
import inspect
import logging
import subprocess
import sys
from collections.abc import Iterator

import pytest

from holdfast import App, ConfigError, TaskHandle
from holdfast.runtime.unawaited import discard

JOB_ID = "01a1e32d-0000-7000-8000-000000000000"

pytestmark = [
    pytest.mark.filterwarnings("ignore:coroutine .* was never awaited:RuntimeWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]


@pytest.fixture
async def app() -> App:
    return App("sqlite://")


@pytest.fixture
def charge(app: App) -> TaskHandle[[int], None]:
    @app.task
    def charge(order_id: int) -> None: ...

    return charge


@pytest.fixture(autouse=True)
def reported(caplog: pytest.LogCaptureFixture) -> Iterator[pytest.LogCaptureFixture]:
    with caplog.at_level(logging.ERROR, logger="holdfast.jobs"):
        yield caplog


def test_a_forgotten_await_is_reported_with_its_line_and_the_remedy(charge, caplog):
    frame = inspect.currentframe()
    assert frame is not None
    charge.enqueue(order_id=7)
    line = frame.f_lineno - 1

    (message,) = caplog.messages
    assert message.startswith(f"charge.enqueue(…) in {__file__}, line {line}, was not awaited: nothing was enqueued.")
    assert "Write `await charge.enqueue(…)`, or in blocking code `charge.sync.enqueue(…)`" in message


def test_each_way_to_write_is_watched(app, charge, caplog):
    charge.options(delay=5).enqueue(7)
    charge.enqueue_many([{"order_id": 7}])
    app.enqueue("charge", 7)
    app.append("orders", stream="7", name="Paid")
    app.append_many("orders", [])
    app.job(JOB_ID).result(timeout=1)
    app.job(JOB_ID).cancel()

    assert [message.partition("(")[0] for message in caplog.messages] == [
        "charge.enqueue",
        "charge.enqueue_many",
        "app.enqueue",
        "app.append",
        "app.append_many",
        "job.result",
        "job.cancel",
    ]
    assert "nothing was cancelled. Write `await job.cancel(…)`" in caplog.messages[-1]


async def test_awaited_calls_are_not_reported(charge, caplog):
    await charge.enqueue(1)
    await asyncio.gather(charge.enqueue(2), charge.enqueue(3))
    await asyncio.create_task(charge.enqueue(4))
    await asyncio.wait_for(charge.enqueue(5), 5)
    async with asyncio.TaskGroup() as group:
        group.create_task(charge.enqueue(6))
    gc.collect()

    assert caplog.messages == []


async def test_a_call_that_is_cancelled_or_refused_before_it_starts_is_not_reported(charge, caplog):
    task = asyncio.create_task(charge.enqueue(1))
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    with pytest.raises(ConfigError, match="would block"):
        charge.sync.enqueue(2)
    discard(charge.enqueue(3))
    del task
    gc.collect()

    assert [record.message for record in caplog.records if record.name.startswith("holdfast")] == []


def test_a_blocking_call_is_not_reported(app, charge, caplog):
    charge.sync.enqueue(order_id=7)
    app.sync.close()

    assert caplog.messages == []


def test_the_methods_stay_coroutine_functions_with_their_signatures(app, charge):
    job = app.job(JOB_ID)
    for method in (
        charge.enqueue,
        charge.enqueue_many,
        app.enqueue,
        app.append,
        app.append_many,
        job.result,
        job.cancel,
    ):
        assert inspect.iscoroutinefunction(method)
        assert asyncio.iscoroutinefunction(method)
        assert "call" not in inspect.signature(method).parameters
    made = charge.enqueue(1)
    assert inspect.iscoroutine(made)  # anyio's task groups take nothing else
    discard(made)


def test_a_call_that_is_kept_until_the_program_ends_is_reported(tmp_path):
    program = tmp_path / "orders.py"
    program.write_text(
        "from holdfast import App\n\napp = App('sqlite://')\n\n\n@app.task\ndef charge(order_id: int): ...\n\n\n"
        "job = charge.enqueue(7)\n"
    )
    done = subprocess.run([sys.executable, program], capture_output=True, text=True, timeout=30, check=True)

    assert f"charge.enqueue(…) in {program}, line 10, was not awaited: nothing was enqueued" in done.stderr
