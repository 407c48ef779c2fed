from __future__ import annotations

import pytest

from holdfast.model.key_limits import LONGEST_WAIT, MOST_ADMITTED, KeyUse
from holdfast.model.limits import LimitUse

SECOND = 1_000_000
NOW = 100 * SECOND


def use(
    running: int | None = None, rate: int | None = None, burst: int = 1, *, admitted: int = 0, at: int = 0
) -> LimitUse:
    """Return a key with so many slots and starts a second."""
    span = None if rate is None else SECOND
    return LimitUse("", "", running, rate, span, None if rate is None else burst, at, admitted, NOW)


@pytest.mark.parametrize(("admitted", "room", "excess"), [(0, 2, 0), (1, 1, 0), (2, 0, 0), (5, 0, 3)])
def test_admitted_jobs_take_slots(admitted, room, excess):
    key = KeyUse(use(2, admitted=admitted))
    assert (key.room, key.excess) == (room, excess)


def test_a_key_without_a_limit_admits_a_batch_at_a_time():
    key = KeyUse(use(admitted=10**6))
    assert (key.room, key.excess, key.wake_at(is_waiting=True)) == (MOST_ADMITTED, 0, NOW)


@pytest.mark.parametrize(("pending", "room"), [(0, 3), (1, 2), (3, 0), (4, 0)])
def test_an_admitted_job_that_is_not_claimed_reserves_its_start(pending, room):
    assert KeyUse(use(rate=1, burst=3), [NOW] * pending).room == room


@pytest.mark.parametrize(("pending", "unrated", "excess"), [(2, 0, 0), (5, 0, 3), (1, 4, 5), (0, 1, 1)])
def test_ready_jobs_that_a_new_or_lower_rate_does_not_allow_wait_again(pending, unrated, excess):
    key = KeyUse(use(rate=1, burst=2, admitted=9), [NOW] * pending, unrated=unrated)
    assert key.excess == excess
    left = key.sent_back(excess)
    assert (left.use.running, len(left.pending), left.unrated) == (9 - excess, min(pending, 2) if not unrated else 0, 0)


def test_starts_are_counted_at_the_instants_of_the_claims():
    key = KeyUse(use(rate=1), starts=[NOW - SECOND // 4, NOW - 9 * SECOND]).counted()
    assert key.use.rate_at == NOW + SECOND * 3 // 4
    assert (key.room, key.wake_at(is_waiting=True)) == (0, NOW + SECOND * 3 // 4)
    assert KeyUse(key.use._replace(now=NOW + SECOND)).room == 1


def test_without_a_rate_starts_do_not_count():
    assert KeyUse(use(1), starts=[NOW]).counted().use.rate_at == 0


def test_no_sequence_of_claims_is_faster_than_the_rate():
    """Jobs are claimed late, in bursts: of any span, no more starts than the burst and the rate allow."""
    now, rate_at, pending, starts = NOW, 0, list[int](), list[int]()
    for claims in (0, 0, 5, 0, 1, 5, 5, 0, 0, 0, 5, 1, 1, 5, 0, 5, 5, 5):
        key = KeyUse(use(rate=4, burst=3, at=rate_at)._replace(now=now), pending, starts[len(starts) :])
        pending += [now] * key.room
        begun = [now] * min(claims, len(pending))
        starts += begun
        del pending[: len(begun)]
        rate_at = KeyUse(key.use, pending, begun).counted().use.rate_at
        now += SECOND // 10
    assert len(starts) > 5
    for first, begin in enumerate(starts):
        for last, end in enumerate(starts[first:], first):
            assert last - first + 1 <= 3 + (end - begin) * 4 / SECOND


def test_a_key_whose_slots_are_taken_waits_for_an_end():
    assert KeyUse(use(1, rate=1, admitted=1), [NOW]).wake_at(is_waiting=True) is None


def test_a_key_is_looked_at_less_often_while_no_worker_claims():
    waits = [KeyUse(use(rate=10, admitted=1), [NOW - waited]).wake_at(is_waiting=True) for waited in (0, SECOND, 10**9)]
    assert waits == [NOW + SECOND // 10, NOW + SECOND, NOW + LONGEST_WAIT]


@pytest.mark.parametrize(("at", "wake", "is_idle"), [(0, None, True), (NOW + 5, NOW + 5, False)])
def test_a_key_without_jobs_is_kept_until_its_rate_is_made_up_for(at, wake, is_idle):
    key = KeyUse(use(rate=1, at=at))
    assert (key.wake_at(is_waiting=False), key.is_idle) == (wake, is_idle)
    assert KeyUse(use(rate=1, at=at, admitted=1)).wake_at(is_waiting=False) is None
