"""Middleware: what runs before, after and around an error, in which order, and what is refused."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager

import pytest

from holdfast import ConfigError
from holdfast.hooks import HandlerCall
from holdfast.hooks.middleware import Middlewares

CALL = HandlerCall("task", "charge", 1, [7], {"note": "secret"})


class Trace:
    def __init__(self) -> None:
        self.steps: list[str] = []
        self.middleware = Middlewares()

    def plain(self, name: str, *, suppresses: bool = False) -> None:
        def around(call: HandlerCall) -> Iterator[None]:
            self.steps.append(f"{name} before {call.name}")
            try:
                yield
            except ValueError as error:
                self.steps.append(f"{name} error {error}")
                if not suppresses:
                    raise
            else:
                self.steps.append(f"{name} after")

        self.middleware.add(around)

    def looped(self, name: str) -> None:
        async def around(call: HandlerCall) -> AsyncIterator[None]:
            await asyncio.sleep(0)
            self.steps.append(f"{name} before {call.name}")
            yield
            self.steps.append(f"{name} after")

        self.middleware.add(around)

    def handler(self) -> int:
        self.steps.append("handler")
        return 5

    async def async_handler(self) -> int:
        return self.handler()

    def wrong(self) -> int:
        raise ValueError("no")


@pytest.fixture
def trace() -> Trace:
    return Trace()


async def test_the_first_registered_is_the_outermost(trace: Trace):
    trace.plain("a")
    trace.looped("b")
    trace.plain("c")

    assert await trace.middleware.around(CALL, trace.async_handler) == 5
    assert trace.steps == [
        "a before charge",
        "b before charge",
        "c before charge",
        "handler",
        "c after",
        "b after",
        "a after",
    ]


async def test_around_a_thread_those_of_the_loop_are_outside(trace: Trace):
    trace.plain("a")
    trace.looped("b")

    assert await trace.middleware.around_thread(CALL, trace.handler, asyncio.to_thread) == 5
    assert trace.steps == ["b before charge", "a before charge", "handler", "a after", "b after"]


def test_an_error_passes_through(trace: Trace):
    trace.plain("a")
    trace.plain("b")

    with pytest.raises(ValueError, match="no"):
        trace.middleware.around_plain(CALL, trace.wrong)
    assert trace.steps == ["a before charge", "b before charge", "b error no", "a error no"]


async def test_a_suppressed_error_is_a_return_without_a_value(trace: Trace):
    async def wrong() -> int:
        return trace.wrong()

    trace.plain("a", suppresses=True)

    assert trace.middleware.around_plain(CALL, trace.wrong) is None
    assert await trace.middleware.around(CALL, wrong) is None
    assert await trace.middleware.around_thread(CALL, trace.wrong, asyncio.to_thread) is None


def test_a_function_is_registered_once(trace: Trace):
    steps: list[str] = []

    def around(call: HandlerCall) -> Iterator[None]:
        steps.append("before")
        yield

    trace.middleware.add(around)
    trace.middleware.add(around)
    trace.middleware.around_plain(CALL, trace.handler)

    assert steps == ["before"]


@contextmanager
def decorated(call: HandlerCall) -> Iterator[None]:
    yield


@pytest.mark.parametrize("wrong", [print, decorated, 7, lambda call: None])
def test_what_has_no_yield_is_refused(wrong):
    with pytest.raises(ConfigError, match="has no `yield`: write a function with one `yield`"):
        Middlewares().add(wrong)


def test_a_call_does_not_show_its_arguments():
    assert repr(CALL) == "<HandlerCall task charge, attempt 1>"
