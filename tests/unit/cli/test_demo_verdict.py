"""The verdict on a run, from what was counted."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast.cli.demo.plan import DemoPlan
from holdfast.cli.demo.verdict import DemoTotals, Found, histogram, judge

PLAN = DemoPlan(jobs=1000, success_rate=0.9, max_attempts=10, work_timeout=5, seed=1)
GOOD: dict[str, Any] = {
    "produced": 1000,
    "effects": 1000,
    "completed": 1000,
    "failed": 0,
    "left": 0,
    "used_attempts": {1: 900, 2: 90, 3: 10},
    "highest_attempt": 3,
}


def words(**changes: Any) -> dict[str, str]:
    return {line.what: line.word for line in judge(PLAN, DemoTotals(**{**GOOD, **changes})).lines}


def verdict(**changes: Any) -> Any:
    return judge(PLAN, DemoTotals(**{**GOOD, **changes}))


def test_a_run_in_which_all_took_effect_once_is_good():
    assert verdict().is_good
    assert set(words().values()) == {"ok", "fits", ""}


@pytest.mark.parametrize("what", ["doubled", "lost", "strays"])
def test_one_work_that_is_wrong_makes_the_verdict_bad_and_is_named(what):
    bad = verdict(**{what: Found(1, ["019a-the-id"])})
    assert not bad.is_good
    assert "019a-the-id" in bad.problems[0]


def test_of_many_wrong_works_the_first_are_named():
    (problem,) = verdict(lost=Found(7, ["a", "b", "c", "d", "e"])).problems
    assert problem.startswith("7 jobs")
    assert problem.endswith("a, b, c, d, e …")


def test_a_completion_that_is_missing_is_bad_even_if_nobody_can_be_named():
    assert words(completed=999)["completed"] == "bad"


def test_what_is_left_to_do_makes_a_run_unfinished_and_not_bad():
    unfinished = verdict(left=10, completed=990, used_attempts={1: 891, 2: 90, 3: 9})
    assert not unfinished.is_good
    assert unfinished.problems == []
    assert unfinished.unfinished == ["10 jobs still to be consumed"]
    assert words(left=10, completed=990)["completed"] == "not yet"


def test_works_that_were_not_produced_make_a_run_unfinished():
    assert "still to be produced" in verdict(produced=900).unfinished[0]


def test_attempts_lost_with_workers_raise_the_highest_attempt_that_is_expected():
    high = PLAN.distribution.highest(1000)[1]
    assert words(highest_attempt=high + 1)["highest attempt"] == "off"
    assert words(highest_attempt=high + 1, lost_attempts=100, most_lost=1)["highest attempt"] == "fits"


def test_tries_that_no_chance_explains_are_off_but_not_bad():
    odd = {"used_attempts": {1: 500, 2: 500}, "highest_attempt": 2}
    assert words(**odd)["distribution"] == "off"
    assert words(**odd)["retried"] == "off"
    assert verdict(**odd).is_good


def test_works_given_up_are_expected_where_attempts_are_few():
    plan = DemoPlan(jobs=1000, success_rate=0.5, max_attempts=1, work_timeout=5, seed=1)
    tally = DemoTotals(**{**GOOD, "completed": 510, "failed": 490, "used_attempts": {1: 510}, "highest_attempt": 1})
    found = {line.what: line for line in judge(plan, tally).lines}
    assert found["failed"].expected == "~500"
    assert found["failed"].word == "fits"
    assert "retried" not in found
    assert "490 jobs failed" in judge(plan, tally).summary


def test_the_histogram_accounts_for_every_work():
    rows = histogram(PLAN, DemoTotals(**GOOD))
    assert sum(jobs for _, jobs, _ in rows) == 1000
    assert sum(expected for _, _, expected in rows) == pytest.approx(1000)
    assert [used_attempts for used_attempts, _, _ in rows] == ["1", "2", "3", "more", "exhausted"]


def test_the_rate_is_told_only_if_time_was_taken():
    assert "jobs/s" not in words()
    assert "jobs/s" in words(seconds=2.0)
