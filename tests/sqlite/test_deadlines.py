"""The thread that watches the limits of handlers' transactions."""

from __future__ import annotations

import threading
import weakref
from datetime import timedelta

import pytest

from holdfast.backends.sqlite.deadlines import Deadlines
from holdfast.errors import StoreUnavailable

LONG = timedelta(seconds=30)
SHORT = timedelta(seconds=0.05)
SOON = 5.0


@pytest.fixture
def deadlines():
    deadlines = Deadlines()
    yield deadlines
    deadlines.close()
    assert deadlines._thread is not None
    deadlines._thread.join(SOON)
    assert not deadlines._thread.is_alive()


def test_an_action_that_raises_does_not_keep_the_next_from_its_time(deadlines, caplog):
    is_called = threading.Event()

    def refuse() -> None:
        raise OSError("no")

    deadlines.set(timedelta(0), refuse)
    deadlines.set(timedelta(0), is_called.set)

    assert is_called.wait(SOON)
    assert "could not be rolled back" in caplog.text


def test_nothing_is_kept_of_deadlines_that_were_met_or_dropped(deadlines):
    class Action:
        def __call__(self) -> None:
            pytest.fail("it was dropped")

    action = Action()
    kept = weakref.ref(action)
    deadline = deadlines.set(LONG, action)
    soon = deadlines.set(SHORT, Action())
    for each in (deadline, soon):
        each.drop()
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
        deadlines.set(LONG, lambda: None).drop()
    assert len(deadlines._waiting) < 100
    assert all(any(entry[2] is one for entry in deadlines._waiting) for one in held)
    deadlines.set(SHORT, is_called.set)
    assert is_called.wait(SOON)


def test_the_end_of_the_watch_ends_what_is_still_limited(deadlines):
    called: list[str] = []
    deadlines.set(LONG, lambda: called.append("open"))
    deadlines.set(LONG, lambda: called.append("ended")).drop()
    deadlines.close()
    assert called == ["open"]


def test_nothing_is_begun_that_nobody_would_limit(deadlines):
    deadlines.set(LONG, lambda: None).drop()
    deadlines.close()
    with pytest.raises(StoreUnavailable, match="closed"):
        deadlines.set(LONG, lambda: None)
