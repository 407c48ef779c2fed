"""Handlers that are generators: a call of one runs no line of it, so it must never count as work done."""

from __future__ import annotations

import functools
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest
from tests.app.stream_work import QUICK, append, drained, eventually, running

from holdfast import App, ConfigError, Event


def steps(event: Any = None) -> Iterator[int]:
    yield 1


async def async_steps(event: Any = None) -> AsyncIterator[int]:
    yield 1


class Steps:
    def __call__(self, event: Any = None) -> Iterator[int]:
        yield 1


def handing_on(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs)

    return wrapper


GENERATORS = {
    "a function": steps,
    "an async function": async_steps,
    "a partial": functools.partial(functools.partial(steps), event=None),
    "an async partial": functools.partial(async_steps, event=None),
    "an object": Steps(),
    "a partial of an object": functools.partial(Steps(), event=None),
    "a bound method": Steps().__call__,
    "a wrapped function": handing_on(steps),
    "a wrapped async function": handing_on(handing_on(async_steps)),
    "a partial of a wrapped function": functools.partial(handing_on(steps), event=None),
    "a wrapped partial": handing_on(functools.partial(steps, event=None)),
}


@pytest.fixture
def app() -> App:
    return App("sqlite://")


@pytest.mark.parametrize("handler", GENERATORS.values(), ids=GENERATORS)
def test_a_generator_is_no_handler_of_a_task(app: App, handler):
    says = r"task 'export': .* is an? (async )?generator function.* remove the `yield`"
    with pytest.raises(ConfigError, match=says):
        app.task(name="export")(handler)
    assert app.tasks.names == ()


@pytest.mark.parametrize("handler", [steps, async_steps, handing_on(steps), Steps().__call__])
def test_a_generator_is_no_handler_of_a_consumer(app: App, handler):
    with pytest.raises(ConfigError, match=r"consumer 'billing': .* is an? (async )?generator function"):
        app.consumer("billing", category="orders")(handler)
    assert not len(app.subscribed)


def test_a_generator_is_no_method_handle_of_a_consumer(app: App):
    class Billing:
        async def handle(self, event: Event) -> AsyncIterator[int]:
            yield 1

    with pytest.raises(ConfigError, match=r"Billing\.handle is an async generator function"):
        app.consumer("billing", category="orders")(Billing)


def test_a_decorator_that_runs_the_generator_is_told_what_to_leave_out(app: App):
    with pytest.raises(ConfigError, match=r"do not use functools\.wraps in it"):
        app.task(name="export")(handing_on(steps))


def test_a_function_that_holds_a_generator_is_a_handler(app: App):
    @app.task
    def export() -> None:
        for _ in steps():
            pass

    assert app.tasks.names == ("export",)


def returned_from_a_thread(event: Event) -> Any:
    return steps(event)


def returned_async_from_a_thread(event: Event) -> Any:
    return async_steps(event)


async def returned(event: Event) -> Any:
    return steps(event)


async def returned_async(event: Event) -> Any:
    return async_steps(event)


async def returned_coroutine(event: Event) -> Any:
    return returned(event)


@pytest.mark.parametrize(
    ("handler", "says"),
    [
        (returned_from_a_thread, "returned a generator that was never iterated"),
        (returned_async_from_a_thread, "returned an async_generator that was never iterated"),
        (returned, "returned a generator that was never iterated"),
        (returned_async, "returned an async_generator that was never iterated"),
        (returned_coroutine, "returned a coroutine that was never awaited"),
    ],
)
async def test_a_consumer_that_returns_what_nobody_runs_has_not_handled_its_event(file_app: App, handler, says):
    file_app.consumer("billing", category="orders", poll_interval=0.05, max_attempts=1, on_error="park")(handler)

    await append(file_app, "a", 1)
    async with running(file_app.node(timing=QUICK)):
        await eventually(drained(file_app))
    (parked,) = await file_app.consumers.parked("billing")
    assert parked.failure is not None
    assert parked.failure.error_class == "holdfast.errors.ConfigError"
    assert says in parked.failure.message
