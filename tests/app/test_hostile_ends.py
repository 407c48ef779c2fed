"""Errors and results whose own code fails when it is looked at: a failed attempt, never the end of the worker."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from tests.app.work import run_all

from holdfast import App, JobState, Retry, Snooze


class RateLimited(Retry):
    """Written in a hurry: the delay of its base is never set."""

    def __init__(self, service: str) -> None:
        self.service = service


class Asleep(Snooze):
    """As above."""

    def __init__(self) -> None:
        pass


class Unreadable(Retry):
    """Its delay fails in a way of its own."""

    @property
    def delay(self) -> float:
        raise SystemExit(1)

    @delay.setter
    def delay(self, value: object) -> None: ...


class Impostor:
    """A value that cannot even be asked what it is."""

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        raise RuntimeError("nobody asks me that")


class Pause:
    """Suspends whoever awaits it."""

    def __await__(self):
        yield


async def reluctant() -> None:
    """A coroutine that cannot be closed the first time."""
    try:
        await Pause()
    except GeneratorExit:
        await Pause()


def raising(error: Callable[[], Exception]) -> Callable[[], Any]:
    def end() -> Any:
        raise error()

    return end


ENDS = {
    "a retry without a delay": raising(lambda: RateLimited("bank")),
    "a snooze without a delay": raising(Asleep),
    "a delay that ends the process": raising(Unreadable),
    "a value without a class": Impostor,
}


@pytest.mark.parametrize("where", ["at once", "in a task", "in a thread"])
@pytest.mark.parametrize("end", ENDS)
async def test_an_end_that_cannot_be_read_fails_the_attempt_and_not_the_worker(app: App, end, where):
    async def asynchronous() -> Any:
        return ENDS[end]()

    def plain() -> Any:
        return ENDS[end]()

    handler = plain if where == "in a thread" else asynchronous
    poison = app.task(name="poison", max_attempts=1, timeout=5 if where == "in a task" else None)(handler)

    @app.task
    async def fine() -> None: ...

    job = await poison.enqueue()
    other = await fine.enqueue()
    await run_all(app)

    assert await job.state() is JobState.FAILED
    assert await other.state() is JobState.COMPLETED


async def test_an_ending_that_forgot_its_base_class_is_told_with_the_remedy_and_where_it_was_raised(app: App):
    @app.task(max_attempts=1)
    async def asks() -> None:
        raise RateLimited("bank")

    job = await asks.enqueue()
    await run_all(app)

    (attempt,) = (await job.details()).attempts
    assert attempt.error_class == "holdfast.errors.ConfigError"
    assert "RateLimited" in str(attempt.message)
    assert "super().__init__" in str(attempt.message)
    assert 'raise RateLimited("bank")' in str(attempt.traceback)


async def test_a_coroutine_that_will_not_be_closed_fails_the_attempt_and_not_the_worker(app: App):
    kept: list[Any] = []

    @app.task(max_attempts=1)
    async def returns() -> Any:
        coroutine = reluctant()
        coroutine.send(None)
        kept.append(coroutine)
        return coroutine

    job = await returns.enqueue()
    await run_all(app)

    assert await job.state() is JobState.FAILED
