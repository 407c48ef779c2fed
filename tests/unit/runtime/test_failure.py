from __future__ import annotations

import asyncio
import json
from typing import NoReturn

import pytest

from holdfast.errors import ConfigError
from holdfast.model.names import check_name
from holdfast.model.outcome import Failure
from holdfast.runtime.failure import MAX_CLASS, MAX_MESSAGE, MAX_TRACEBACK, describe, describe_reason


def caught(function, *args) -> BaseException:
    try:
        function(*args)
    except BaseException as error:  # noqa: BLE001
        return error
    raise AssertionError


def raise_(error: BaseException) -> NoReturn:
    raise error


def bounded(failure: Failure) -> bool:
    sizes = [len(text.encode()) for text in (failure.error_class, failure.message, failure.traceback)]
    return sizes[0] <= MAX_CLASS and sizes[1] <= MAX_MESSAGE and sizes[2] <= MAX_TRACEBACK


def test_an_error_keeps_its_class_message_and_traceback():
    failure = describe(caught(raise_, ValueError("no such order")))
    assert failure.error_class == "ValueError"
    assert failure.message == "no such order"
    assert failure.traceback.startswith("Traceback (most recent call last):")
    assert "in raise_" in failure.traceback
    assert failure.traceback.endswith("ValueError: no such order")
    assert len(failure.signature) == 16


def test_a_class_is_named_with_its_module():
    assert describe(ConfigError("x")).error_class == "holdfast.errors.ConfigError"


def test_an_error_that_was_never_raised_is_described():
    assert describe(ValueError("x")).traceback == "ValueError: x"


class Unprintable(Exception):  # noqa: N818
    def __str__(self) -> str:
        raise RuntimeError


class Exiting(Exception):  # noqa: N818
    def __str__(self) -> str:
        raise SystemExit


@pytest.mark.parametrize(("cls", "why"), [(Unprintable, "RuntimeError"), (Exiting, "SystemExit")])
def test_an_error_whose_text_fails_is_described_all_the_same(cls, why):
    failure = describe(caught(raise_, cls()))
    assert failure.message == f"(its __str__ raised {why})"
    assert "in raise_" in failure.traceback


class _LyingMeta(type):
    @property
    def __module__(cls) -> str:  # type: ignore[override]
        raise RuntimeError


class Hostile(Exception, metaclass=_LyingMeta):  # noqa: N818
    pass


def test_an_error_that_cannot_be_looked_at_gives_a_constant():
    failure = describe(Hostile())
    assert failure.error_class == "UnknownError"
    assert failure.message
    assert bounded(failure)


def _recurse(depth: int) -> int:
    return _recurse(depth + 1) + 1


def _ping(depth: int) -> int:
    return _pong(depth + 1) + 1


def _pong(depth: int) -> int:
    return _ping(depth + 1) + 1


@pytest.mark.parametrize("function", [_recurse, _ping])
def test_endless_recursion_is_described_within_bounds(function):
    failure = describe(caught(function, 0))
    assert failure.error_class == "RecursionError"
    assert failure.traceback.startswith("Traceback")
    assert "RecursionError" in failure.traceback.splitlines()[-1]
    assert bounded(failure)


def test_a_huge_message_is_cut_and_the_traceback_keeps_head_and_tail():
    failure = describe(caught(raise_, ValueError("ä\0" * 1_000_000 + "END")))
    assert bounded(failure)
    assert failure.message.endswith("…")
    assert failure.traceback.startswith("Traceback")
    assert failure.traceback.endswith("END")
    assert "left out" in failure.traceback
    assert "\0" not in failure.message + failure.traceback


def test_a_group_shows_its_members():
    failure = describe(caught(raise_, ExceptionGroup("both", [ValueError("left"), OSError("right")])))
    assert failure.error_class == "ExceptionGroup"
    assert "left" in failure.traceback
    assert "right" in failure.traceback


def test_a_group_nested_a_thousand_deep_is_described():
    group: Exception = ValueError("inner")
    for _ in range(2000):
        group = ExceptionGroup("outer", [group])
    failure = describe(caught(raise_, group))
    assert failure.error_class == "ExceptionGroup"
    assert bounded(failure)


def test_a_cause_is_shown_and_a_circle_of_causes_ends():
    outer, inner = ValueError("outer"), OSError("inner")
    outer.__cause__, inner.__cause__ = inner, outer
    failure = describe(caught(raise_, outer))
    assert "inner" in failure.traceback
    assert failure.traceback.endswith("ValueError: outer")


def test_a_long_chain_of_causes_is_cut():
    error = ValueError("0")
    for number in range(2000):
        following = ValueError(str(number))
        following.__cause__ = error
        error = following
    failure = describe(caught(raise_, error))
    assert failure.traceback.endswith("ValueError: 1999")
    assert bounded(failure)


def test_our_own_frames_on_top_are_left_out():
    # `describe` is not below the error here, so a call through a module of ours stands for the worker.
    def handler() -> NoReturn:
        raise ValueError("x")

    namespace: dict[str, object] = {}
    exec(compile("def run(h):\n    h()\n", describe.__code__.co_filename, "exec"), namespace)  # noqa: S102
    error = caught(lambda: namespace["run"](handler))  # type: ignore[operator]
    own = error.__traceback__
    assert own is not None
    error = error.with_traceback(own.tb_next.tb_next if own.tb_next else None)  # begins in our frame
    assert error.__traceback__ is not None
    assert error.__traceback__.tb_frame.f_code.co_name == "run"
    failure = describe(error)
    assert "in run" not in failure.traceback
    assert "in handler" in failure.traceback


async def test_the_frames_of_a_thread_on_top_are_left_out():
    try:
        await asyncio.get_running_loop().run_in_executor(None, raise_, ValueError("x"))
    except ValueError as error:
        tb = error.__traceback__
        assert tb is not None
        text = describe(error.with_traceback(tb.tb_next)).traceback
    assert "thread.py" not in text
    assert "in raise_" in text


def test_an_error_of_our_own_keeps_all_frames():
    assert "in check_name" in describe(caught(check_name, "queue", "a b")).traceback


def _load(text: str) -> object:
    return json.loads(text)


def _load_too(text: str) -> object:
    return json.loads(text)


def test_errors_of_one_class_from_one_place_share_a_signature():
    one, two = describe(caught(_load, "{")), describe(caught(_load, "[1,"))
    assert one.message != two.message
    assert one.signature == two.signature


def test_another_function_or_class_has_another_signature():
    signatures = {
        describe(caught(_load, "{")).signature,
        describe(caught(_load_too, "{")).signature,
        describe(caught(_load, 5)).signature,
        describe_reason("WorkerLost", "x").signature,
    }
    assert len(signatures) == 4


def test_a_reason_without_an_exception_is_bounded_and_grouped_by_its_class():
    one, two = describe_reason("WorkerLost", "a\0" * 5000), describe_reason("WorkerLost", "b")
    assert one.signature == two.signature
    assert one.message.startswith(r"a\x00a")
    assert bounded(one)
    assert two == Failure("WorkerLost", "b", signature=two.signature)
