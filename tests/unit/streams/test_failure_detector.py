"""Whose silence the leader may take for death."""

from __future__ import annotations

from tests.unit.streams.survey import TIMING, node

from holdfast.model.allocation import NodeKey
from holdfast.streams.failure_detector import FailureDetector

TTL = TIMING.ttl.total_seconds()
GRACE = TIMING.grace.total_seconds()
GAP = TIMING.self_fence.total_seconds()
HALF = TTL / 2
DEAD = NodeKey("a", "a-1")


def watch(witness: FailureDetector, now: float, *, silent: float) -> bool:
    """Reach the store at this instant, see node a silent for so long; True if it is gone."""
    witness.answered(sent=now, now=now)
    return witness.gone([node("a", silent=silent), node("b")], now) == {DEAD}


def watched(witness: FailureDetector, start: float, end: float, *, silent: float) -> list[float]:
    """Look every second at a node that has stopped; return when it was gone."""
    return [start + step for step in range(int(end - start) + 1) if watch(witness, start + step, silent=silent + step)]


def test_a_node_that_dies_is_gone_when_its_ttl_and_the_grace_have_passed_and_no_later():
    assert watched(FailureDetector(TIMING), 100, 120, silent=0) == [100 + second for second in range(13, 21)]


def test_a_leader_that_has_only_begun_to_look_waits_for_half_a_ttl():
    assert watched(FailureDetector(TIMING), 100, 110, silent=60) == [100 + second for second in range(int(HALF), 11)]


def test_a_leader_that_waited_for_the_lease_of_a_dead_one_loses_no_time():
    lease = TIMING.leader_lease.total_seconds()
    found = watched(FailureDetector(TIMING), 100, 110, silent=lease + 1)  # one pass after the end of its lease
    assert found[0] == 100 + TTL + GRACE + 1 - (lease + 1)


def test_after_an_outage_the_living_have_half_a_ttl_to_report():
    witness = FailureDetector(TIMING)
    assert not watch(witness, 100, silent=1)
    witness.broken()  # for a minute
    assert not watch(witness, 160, silent=61)
    assert not watch(witness, 160 + HALF - 1, silent=61 + HALF - 1)
    assert not watch(witness, 160 + HALF, silent=0.5)
    assert watch(witness, 160 + HALF + 13, silent=13.5) is False  # a gap in between
    assert watched(witness, 200, 206, silent=60) == [205, 206]


def test_a_call_that_took_longer_than_a_gap_is_an_outage():
    witness = FailureDetector(TIMING)
    assert watched(witness, 100, 110, silent=60)
    witness.answered(sent=110, now=110 + GAP + 0.1)
    assert witness.gone([node("a", silent=80)], 110 + GAP + 0.2) == frozenset()
    assert not watch(witness, 118, silent=81)


def test_a_process_that_stood_still_has_seen_nothing_meanwhile():
    witness = FailureDetector(TIMING)
    assert watched(witness, 100, 110, silent=60)
    assert not watch(witness, 110 + GAP + 1, silent=80)


def test_a_clock_set_forward_makes_no_living_node_gone():
    witness = FailureDetector(TIMING)
    assert not watched(witness, 100, 103, silent=0.1)
    assert not watch(witness, 104, silent=3600)
    assert not watch(witness, 105, silent=0.3)
    assert not watched(witness, 106, 112, silent=0)


def test_a_clock_set_back_makes_no_living_node_gone_and_no_dead_one_immortal():
    witness = FailureDetector(TIMING)
    assert not watched(witness, 100, 103, silent=0.1)
    assert not watch(witness, 104, silent=-3600)
    assert not watch(witness, 105, silent=0.3)
    dies = watched(witness, 106, 120, silent=-3600)
    assert dies == [105 + second for second in range(int(HALF), 16)]


def test_a_node_that_has_left_the_survey_is_forgotten():
    witness = FailureDetector(TIMING)
    watched(witness, 100, 105, silent=0)
    witness.gone([], 105)
    assert watch(witness, 106, silent=60)


def test_passes_further_apart_than_the_self_fence_do_not_make_every_node_immortal():
    timing = TIMING.scaled(1)
    rare = type(timing)(allocate_every=20, leader_lease=60)
    witness = FailureDetector(rare)
    witness.answered(sent=100, now=100)
    assert witness.gone([node("a", silent=60)], 100) == frozenset()
    witness.answered(sent=121, now=121)
    assert witness.gone([node("a", silent=81)], 121) == {DEAD}
