from __future__ import annotations

import msgspec

from holdfast.model.budget import MAX_INTERRUPTED, MAX_LOST, BudgetDecision, Counters, after_interruption, after_loss


def lose(counters: Counters, *, alone: bool, max_attempts: int = 5) -> BudgetDecision:
    """Claim the job once more, and lose it."""
    claimed = msgspec.structs.replace(counters, attempt=counters.attempt + 1)
    return after_loss(claimed, max_attempts=max_attempts, alone=alone)


def used(counters: Counters) -> int:
    return counters.attempt - counters.excused


def test_a_job_that_is_lost_beside_others_is_excused_and_is_to_run_isolated():
    verdict = lose(Counters(), alone=False)
    assert verdict.failed_because is None
    assert (used(verdict.counters), verdict.counters.lost, verdict.counters.interrupted) == (0, 1, 1)


def test_losses_beside_others_do_not_add_up_to_a_fault_of_its_own():
    counters = Counters()
    for _ in range(MAX_LOST + 2):
        counters = lose(counters, alone=False).counters
    verdict = lose(counters, alone=True)
    assert verdict.failed_because is None
    assert (used(verdict.counters), verdict.counters.lost) == (1, 2)


def test_a_job_that_is_lost_alone_loses_an_attempt_and_in_the_end_is_failed():
    counters = lose(Counters(), alone=False).counters
    for number in range(2, MAX_LOST):
        verdict = lose(counters, alone=True)
        counters = verdict.counters
        assert (verdict.failed_because, counters.lost, used(counters)) == (None, number, number - 1)
    assert lose(counters, alone=True).failed_because == f"worker lost {MAX_LOST} times while it ran this job"


def test_a_job_that_is_lost_alone_on_its_last_attempt_is_failed():
    assert lose(Counters(), alone=True, max_attempts=1).failed_because == "worker lost on the last attempt"


def test_a_job_that_is_lost_beside_others_for_ever_is_failed_in_the_end():
    """So ends one that kills its worker from inside a child process, whoever is beside it."""
    verdict, losses = BudgetDecision(Counters(), None), 0
    while verdict.failed_because is None:
        verdict, losses = lose(verdict.counters, alone=False, max_attempts=5), losses + 1
    assert losses == MAX_INTERRUPTED + 5
    assert verdict.failed_because == f"worker lost too often ({MAX_INTERRUPTED} times)"


def test_interruptions_and_losses_beside_others_share_one_bound():
    counters = Counters()
    for _ in range(MAX_INTERRUPTED):
        claimed = msgspec.structs.replace(counters, attempt=counters.attempt + 1)
        counters = after_interruption(claimed, max_attempts=1).counters
    assert used(counters) == 0
    assert lose(counters, alone=False, max_attempts=1).failed_because is not None
