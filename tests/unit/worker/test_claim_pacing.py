from __future__ import annotations

from holdfast.worker.claim_pacing import Claims, EndRate
from holdfast.worker.settings import WorkerConfig


def steady(*, duration: float, running: int, seconds: float = 5.0) -> EndRate:
    pace = EndRate()
    for tick in range(int(seconds / 0.02)):
        pace.sample(tick * 0.02, int(tick * 0.02 * running / duration), running=running)
    return pace


def test_about_a_quarter_of_a_second_of_work_is_claimed_ahead_of_fast_handlers():
    assert 200 <= steady(duration=0.01, running=10).ahead() <= 300


def test_nothing_is_claimed_ahead_of_handlers_that_take_more_than_a_second():
    assert steady(duration=1.5, running=10, seconds=20).ahead() == 0


def test_time_without_work_does_not_lower_the_measured_rate():
    pace = steady(duration=0.01, running=10)
    before = pace.ahead()
    for tick in range(100):
        pace.sample(10.0 + tick, pace._seen, running=0)
    assert pace.ahead() == before


def test_a_claim_is_at_least_the_free_slots_and_at_most_a_batch():
    claims = Claims(WorkerConfig(concurrency=10, batch_max=40))
    assert claims.limit(0.0, free=10, prefetched=0) == 10
    claims.answered(0.0, 10, asked=10)
    claims.pace = steady(duration=0.001, running=10)
    assert claims.limit(0.0, free=10, prefetched=0) == 40


def test_what_waits_beyond_the_free_slots_is_bounded():
    claims = Claims(WorkerConfig(concurrency=10, prefetch_max=7))
    claims.pace = steady(duration=0.001, running=10)
    assert claims.limit(0.0, free=2, prefetched=0) == 9


def test_only_one_claim_is_in_flight():
    claims = Claims(WorkerConfig())
    assert claims.limit(0.0, free=10, prefetched=0)
    assert claims.limit(0.0, free=10, prefetched=0) == 0


def test_a_full_claim_is_followed_at_once_a_short_one_after_the_poll_interval():
    claims = Claims(WorkerConfig(poll_interval=0.5))
    claims.limit(0.0, free=10, prefetched=0)
    claims.answered(0.1, 10, asked=10)
    assert claims.limit(0.1, free=10, prefetched=0) == 10
    claims.answered(0.2, 9, asked=10)
    assert claims.limit(0.6, free=10, prefetched=0) == 0
    assert claims.due_at(free=10, prefetched=0) == 0.7
    assert claims.limit(0.7, free=10, prefetched=0) == 10


def test_failed_claims_are_repeated_ever_later_up_to_five_seconds_even_when_woken():
    claims = Claims(WorkerConfig())
    now, pauses = 0.0, []
    for _ in range(8):
        assert claims.limit(now, free=1, prefetched=0) == 1
        claims.failed(now)
        claims.woken()
        pauses.append(claims.due_at(free=1, prefetched=0) - now)
        assert claims.limit(now + pauses[-1] * 0.99, free=1, prefetched=0) == 0
        now += pauses[-1] + 1e-6
    assert [round(pause, 3) for pause in pauses] == [0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 5.0, 5.0]
