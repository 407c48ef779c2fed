"""Timeouts that one thread watches."""

from __future__ import annotations

import threading
import weakref

import pytest

from holdfast.concurrency.deadlines import Deadlines, DeadlinesClosedError
from holdfast.concurrency.timeouts import limited_blocking

LONG = 30.0
SHORT = 0.05
SOON = 5.0


@pytest.fixture
def deadlines():
    deadlines = Deadlines("test-deadlines")
    yield deadlines
    deadlines.close()
    assert deadlines._thread is not None
    deadlines._thread.join(SOON)
    assert not deadlines._thread.is_alive()


def test_an_action_that_raises_does_not_keep_the_next_from_its_time(deadlines, caplog):
    is_called = threading.Event()

    def refuse() -> None:
        raise OSError("no")

    deadlines.set(0.0, refuse)
    deadlines.set(0.0, is_called.set)

    assert is_called.wait(SOON)
    assert "the action of a timeout failed" in caplog.text


def test_nothing_is_kept_of_deadlines_that_were_met_or_dropped(deadlines):
    class Action:
        def __call__(self) -> None:
            pytest.fail("it was dropped")

    action = Action()
    kept = weakref.ref(action)
    deadline = deadlines.set(LONG, action)
    soon = deadlines.set(SHORT, Action())
    for each in (deadline, soon):
        each.cancel()
    del action
    assert kept() is None
    last = threading.Event()
    deadlines.set(2 * SHORT, last.set)
    assert last.wait(SOON)
    assert [entry for entry in deadlines._waiting if entry[2] is not deadline] == []


def test_a_deadline_that_comes_before_the_one_that_is_waited_for_is_met_in_its_time(deadlines):
    is_called = threading.Event()
    deadlines.set(LONG, lambda: None)
    deadlines.set(SHORT, is_called.set)

    assert is_called.wait(SOON)


def test_limits_of_transactions_that_have_ended_are_not_kept_until_they_would_have_passed(deadlines):
    is_called = threading.Event()
    held = [deadlines.set(2 * LONG, lambda: None) for _ in range(10)]
    for _ in range(10_000):
        deadlines.set(LONG, lambda: None).cancel()
    assert len(deadlines._waiting) < 100
    assert all(any(entry[2] is one for entry in deadlines._waiting) for one in held)
    deadlines.set(SHORT, is_called.set)
    assert is_called.wait(SOON)


def test_the_end_of_the_watch_ends_what_is_still_limited(deadlines):
    called: list[str] = []
    deadlines.set(LONG, lambda: called.append("open"))
    deadlines.set(LONG, lambda: called.append("ended")).cancel()
    deadlines.close()
    assert called == ["open"]


def test_nothing_is_begun_that_nobody_would_limit(deadlines):
    deadlines.set(LONG, lambda: None).cancel()
    deadlines.close()
    with pytest.raises(DeadlinesClosedError):
        deadlines.set(LONG, lambda: None)


def test_an_action_that_has_started_has_ended_once_its_deadline_is_cancelled(deadlines):
    has_started, may_end, ended = threading.Event(), threading.Event(), threading.Event()

    def action() -> None:
        has_started.set()
        assert may_end.wait(SOON)
        ended.set()

    deadline = deadlines.set(0.0, action)
    assert has_started.wait(SOON)
    threading.Timer(SHORT, may_end.set).start()
    deadline.cancel()
    assert ended.is_set()


def test_a_block_that_ends_in_time_is_not_interrupted():
    called = threading.Event()
    with limited_blocking(LONG, called.set):
        pass
    with limited_blocking(0.0, called.set):
        assert called.wait(SOON)
