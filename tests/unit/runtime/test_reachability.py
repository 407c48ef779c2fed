from __future__ import annotations

from holdfast.runtime.reachability import Access


def test_access_begins_when_the_first_successful_call_has_returned_and_lasts_while_calls_succeed():
    access = Access(gap=2.0)
    assert access.began(0.0) is None
    for now in (10.0, 11.5, 13.4):
        access.succeeded(now)
    assert access.began(14.0) == 10.0


def test_any_failed_call_breaks_access():
    access = Access(gap=2.0)
    access.succeeded(10.0)
    access.failed()
    assert access.began(10.1) is None
    access.succeeded(10.5)
    assert access.began(10.6) == 10.5


def test_successes_more_than_a_gap_apart_do_not_join():
    access = Access(gap=2.0)
    access.succeeded(10.0)
    access.succeeded(12.1)
    assert access.began(12.2) == 12.1


def test_a_success_more_than_a_gap_old_is_no_present_access():
    access = Access(gap=2.0)
    access.succeeded(10.0)
    assert access.began(12.0) == 10.0
    assert access.began(12.1) is None
