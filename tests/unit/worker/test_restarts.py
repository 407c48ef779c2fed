from __future__ import annotations

import pytest

from holdfast.worker.supervision.restarts import ChildExit, Delays, RestartSeat, decide, is_hopeless


def delays_of(ends: list[ChildExit]) -> list[float]:
    failures, waits = 0, []
    for end in ends:
        restart = decide(end, failures=failures)
        assert restart is not None
        failures = restart.failures
        waits.append(restart.delay)
    return waits


def test_each_death_in_a_row_doubles_the_wait_up_to_ten_seconds():
    waits = delays_of([ChildExit(70, lived=0.01)] * 9)
    assert waits == pytest.approx([0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 10.0, 10.0])


def test_a_child_that_was_healthy_for_a_minute_is_followed_as_after_a_first_death():
    waits = delays_of(
        [ChildExit(70, lived=1), ChildExit(70, lived=59.9), ChildExit(137, lived=60), ChildExit(70, lived=1)]
    )
    assert waits == pytest.approx([0.1, 0.2, 0.1, 0.2])


def test_there_is_no_last_try():
    assert decide(ChildExit(70, lived=0), failures=1_000_000) == RestartSeat(delay=10.0, failures=1_000_001)


def test_a_child_that_ends_with_0_is_not_followed():
    assert decide(ChildExit(0, lived=5)) is None


@pytest.mark.parametrize("code", [0, 1, 70, 78, 137])
def test_nobody_is_followed_while_stopping(code):
    assert decide(ChildExit(code, lived=5), stopping=True, replacing=True) is None


@pytest.mark.parametrize("code", [0, 1, 137])
def test_a_replaced_child_is_followed_at_once_however_it_ended(code):
    assert decide(ChildExit(code, lived=5), failures=4, replacing=True) == RestartSeat(delay=0.0, failures=0)


def test_the_wait_can_be_set():
    delays = Delays(first=1, limit=3, healthy_after=5)
    assert [delays.after(n) for n in range(4)] == [1, 2, 3, 3]
    assert decide(ChildExit(70, lived=5), failures=7, delays=delays) == RestartSeat(delay=1, failures=1)


def test_it_is_hopeless_when_every_seat_refused_its_configuration_at_start():
    assert is_hopeless([ChildExit(78, lived=0.2), ChildExit(78, lived=1.0)])


@pytest.mark.parametrize(
    "other",
    [None, ChildExit(70, lived=0.1), ChildExit(78, lived=1.1)],
    ids=["is filled", "crashed", "worked for a while first"],
)
def test_it_is_not_hopeless_while_one_seat(other):
    assert not is_hopeless([ChildExit(78, lived=0.2), other])
