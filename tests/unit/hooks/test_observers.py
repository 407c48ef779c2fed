"""Observers: their order, their errors, those that are slow, and how they end."""

from __future__ import annotations

import asyncio
import contextvars
import logging
from typing import Any

import pytest

from holdfast import ConfigError
from holdfast.hooks import observers
from holdfast.hooks.observers import Hook, Hooks

SECRET = contextvars.ContextVar("secret", default="")


@pytest.fixture
def hook() -> Hook[Any]:
    return Hook("job.end")


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [1000.0]
    monkeypatch.setattr(observers, "monotonic", lambda: now[0])
    return now


def test_observers_are_called_in_the_order_in_which_they_were_added_each_once(hook: Hook[Any]):
    seen: list[tuple[str, int]] = []

    def first(value: int) -> None:
        seen.append(("first", value))

    @hook
    def second(value: int) -> None:
        seen.append(("second", value))

    hook(first)
    hook(first)
    hook.emit(1)

    assert seen == [("second", 1), ("first", 1)]


def test_a_removed_observer_is_called_no_more(hook: Hook[Any]):
    seen: list[int] = []
    hook(seen.append)
    hook.emit(1)
    hook.remove(seen.append)
    hook.remove(print)
    hook.emit(2)

    assert seen == [1]
    assert hook.observers == ()


@pytest.mark.parametrize("error", [ValueError("no"), SystemExit(3), asyncio.CancelledError()])
def test_an_observer_that_fails_affects_neither_the_caller_nor_the_next_one(hook: Hook[Any], caplog, error):
    seen: list[int] = []

    @hook
    def wrong(value: int) -> None:
        raise error

    hook(seen.append)
    hook.emit(1)

    assert seen == [1]
    (record,) = caplog.records
    assert "wrong of 'job.end' failed; what it observed is not affected" in record.getMessage()
    assert record.exc_info[1] is error


def test_the_same_observer_is_complained_of_once_per_interval(hook: Hook[Any], caplog, clock: list[float]):
    @hook
    def wrong(value: int) -> None:
        raise ValueError(value)

    for number in range(3):
        hook.emit(number)
    assert len(caplog.records) == 1
    clock[0] += observers.QUIET + 1
    hook.emit(3)

    assert len(caplog.records) == 2
    assert "and 2 more problems with it" in caplog.text


def test_a_plain_observer_that_is_slow_is_reported_with_the_remedy(hook: Hook[Any], caplog, clock: list[float]):
    @hook
    def slow(value: int) -> None:
        clock[0] += 0.5

    hook.emit(1)

    assert "slow of 'job.end' took 0.5 s and held up everything else: make it an async def" in caplog.text


def test_a_plain_function_that_returns_a_coroutine_is_reported(hook: Hook[Any], caplog):
    async def later(value: int) -> None: ...

    hook(lambda value: later(value))  # noqa: PLW0108
    hook.emit(1)

    assert "register the async function itself" in caplog.text


async def test_an_async_observer_gets_the_values_in_order_and_delays_nothing(hook: Hook[Any]):
    seen: list[int] = []
    may_go_on = asyncio.Event()

    @hook
    async def slow(value: int) -> None:
        await may_go_on.wait()
        seen.append(value)

    for number in range(5):
        hook.emit(number)
    await asyncio.sleep(0)
    assert seen == []
    may_go_on.set()
    await until_settled(hook)

    assert seen == [0, 1, 2, 3, 4]


async def until_settled(hook: Hook[Any]) -> None:
    hooks = Hooks()
    hooks.job_end.observers = hook.observers
    await hooks.settle()


async def test_an_async_observer_that_fails_gets_the_next_value(hook: Hook[Any], caplog):
    seen: list[int] = []

    @hook
    async def wrong(value: int) -> None:
        seen.append(value)
        if value == 0:
            raise ValueError(value)
        raise asyncio.CancelledError

    for number in range(3):
        hook.emit(number)
    await until_settled(hook)

    assert seen == [0, 1, 2]
    assert len(caplog.records) == 1


async def test_values_beyond_the_limit_are_dropped_and_that_is_logged(hook: Hook[Any], caplog, monkeypatch):
    monkeypatch.setattr(observers, "MOST_WAITING", 3)
    seen: list[int] = []

    @hook
    async def slow(value: int) -> None:
        await asyncio.sleep(0)
        seen.append(value)

    for number in range(10):
        hook.emit(number)
    await until_settled(hook)

    assert seen == [0, 1, 2]
    assert "3 values wait for it, and further ones are dropped" in caplog.text


async def test_an_async_observer_does_not_see_the_context_in_which_it_happened(hook: Hook[Any]):
    seen: list[str] = []
    SECRET.set("transaction")

    @hook
    async def look(value: int) -> None:
        seen.append(SECRET.get())

    hook.emit(1)
    await until_settled(hook)

    assert seen == [""]


async def test_an_observer_that_does_not_end_is_cancelled_after_the_timeout(caplog):
    hooks = Hooks()

    @hooks.job_end
    async def never(value: object) -> None:
        await asyncio.Event().wait()

    hooks.job_end.emit(None)  # type: ignore[arg-type]
    await hooks.settle(timeout=0.01)
    assert caplog.text == ""
    await hooks.settle(timeout=0.01, cancels=True)

    assert "1 observers did not end within 0.01 s" in caplog.text
    assert len(asyncio.all_tasks()) == 1


def test_an_async_observer_without_an_event_loop_is_reported(hook: Hook[Any], caplog):
    @hook
    async def later(value: int) -> None: ...

    hook.emit(1)

    assert "no running event loop" in caplog.text


def test_an_unknown_hook_is_refused_with_the_names_of_all():
    with pytest.raises(ConfigError, match=r"there is no hook 'job.ended': choose one of job\.enqueue, job\.start, job"):
        Hooks().named("job.ended")


def test_what_cannot_be_called_is_refused(hook: Hook[Any]):
    with pytest.raises(ConfigError, match="7 is not a function"):
        hook(7)  # type: ignore[arg-type]


def test_each_hook_has_the_name_of_its_attribute():
    hooks = Hooks()
    for name, hook in vars(hooks).items():
        if isinstance(hook, Hook):
            assert hooks.named(hook.name) is hook
            assert hook.name == name.replace("_", ".")


def test_keyboard_interrupts_pass(hook: Hook[Any]):
    @hook
    def stop(value: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        hook.emit(1)


def test_nothing_is_logged_of_a_good_observer(hook: Hook[Any], caplog):
    with caplog.at_level(logging.DEBUG):
        hook(lambda _: None)
        hook.emit(1)

    assert caplog.records == []
