"""What a node does with the shares that it is given and asked for."""

from __future__ import annotations

from datetime import timedelta

from hypothesis import given
from hypothesis import strategies as st

from holdfast.model.allocation import Grant, Share, ShareState, Timing
from holdfast.store.stream_values import OwnedShare, OwnedShares
from holdfast.streams.broker import Begin, Broker, Command, Drain, Drop

TIMING = Timing()
FENCE = TIMING.self_fence.total_seconds()


def grant(partition: int = 0, generation: int = 1) -> Grant:
    return Grant(Share("sync", "companies", partition), generation)


def owned(given: Grant, state: ShareState = ShareState.GRANTED) -> OwnedShare:
    left = timedelta(seconds=5) if state is ShareState.REVOKING else None
    return OwnedShare(given, state, left)


def answered(broker: Broker, answer: OwnedShares, *, sent: float) -> list[Command]:
    """Take in the answer to a heartbeat, as the thread and then the event loop do."""
    broker.answered(answer, sent=sent)
    return broker.compare(answer)


def looked(broker: Broker, answer: OwnedShares) -> list[Command]:
    broker.answered(answer, sent=None)
    return broker.compare(answer)


def test_a_granted_share_is_begun_once():
    broker = Broker(TIMING)
    answer = OwnedShares(True, (owned(grant()),))
    assert answered(broker, answer, sent=0) == [Begin(grant())]
    assert answered(broker, answer, sent=1) == []


def test_a_revoked_share_is_drained_once_and_forgotten_when_released():
    broker = Broker(TIMING)
    answered(broker, OwnedShares(True, (owned(grant()),)), sent=0)
    answer = OwnedShares(True, (owned(grant(), ShareState.REVOKING),))
    assert answered(broker, answer, sent=1) == [Drain(grant(), timedelta(seconds=5))]
    assert answered(broker, answer, sent=2) == []
    broker.released(grant())
    assert broker.grants == []


def test_a_share_that_was_revoked_before_it_was_begun_is_given_back_by_the_same_way():
    broker = Broker(TIMING)
    commands = answered(broker, OwnedShares(True, (owned(grant(), ShareState.REVOKING),)), sent=0)
    assert [type(command) for command in commands] == [Begin, Drain]


def test_a_share_that_is_not_ours_any_more_is_dropped():
    broker = Broker(TIMING)
    answered(broker, OwnedShares(True, (owned(grant(0)), owned(grant(1)))), sent=0)
    assert answered(broker, OwnedShares(True, (owned(grant(1)),)), sent=1) == [Drop(grant(0))]


def test_a_share_granted_anew_is_dropped_before_it_is_begun_again():
    broker = Broker(TIMING)
    answered(broker, OwnedShares(True, (owned(grant(generation=1)),)), sent=0)
    commands = answered(broker, OwnedShares(True, (owned(grant(generation=3)),)), sent=1)
    assert commands == [Drop(grant(generation=1)), Begin(grant(generation=3))]


def test_a_late_word_that_an_old_grant_was_released_does_not_touch_the_new_one():
    broker = Broker(TIMING)
    answered(broker, OwnedShares(True, (owned(grant(generation=1)),)), sent=0)
    answered(broker, OwnedShares(True, (owned(grant(generation=3)),)), sent=1)
    broker.released(grant(generation=1))
    assert broker.grants == [grant(generation=3)]


def test_a_node_that_the_store_does_not_know_drops_all_and_dispatches_nothing():
    broker = Broker(TIMING)
    answered(broker, OwnedShares(True, (owned(grant(0)), owned(grant(1)))), sent=0)
    assert answered(broker, OwnedShares(False), sent=1) == [Drop(grant(0)), Drop(grant(1))]
    assert not broker.sure_for(1)


def test_before_the_first_answer_nothing_is_dispatched():
    assert not Broker(TIMING).may_handle(grant(), 0)


@given(st.floats(0, 100), st.floats(0, 100))
def test_dispatch_ends_a_self_fence_after_the_last_answered_report_was_sent(sent, later):
    broker = Broker(TIMING)
    answered(broker, OwnedShares(True), sent=sent)
    assert (broker.sure_for(sent + later) > 0) == ((sent + later) - sent < FENCE)


def test_an_answer_that_comes_out_of_order_does_not_turn_the_clock_back():
    broker = Broker(TIMING)
    answered(broker, OwnedShares(True), sent=10)
    answered(broker, OwnedShares(True), sent=5)
    assert broker.sure_for(10 + FENCE - 0.1)


def test_dispatch_is_allowed_again_after_the_next_answer():
    broker = Broker(TIMING)
    answered(broker, OwnedShares(True), sent=0)
    assert not broker.sure_for(FENCE)
    answered(broker, OwnedShares(True), sent=FENCE + 1)
    assert broker.sure_for(FENCE + 2)


def test_nothing_is_handled_under_a_grant_that_the_last_answer_does_not_name():
    broker = Broker(TIMING)
    answered(broker, OwnedShares(True, (owned(grant(0)), owned(grant(1)))), sent=0)
    broker.answered(OwnedShares(True, (owned(grant(1)),)), sent=1)  # the blocked event loop has not dropped it yet
    assert [broker.may_handle(grant(number), 2) for number in (0, 1)] == [False, True]
    assert not broker.may_handle(grant(1), 1 + FENCE)


def test_a_share_that_a_look_has_found_is_handled_at_once_but_no_longer_than_the_last_heartbeat_allows():
    broker = Broker(TIMING)
    answered(broker, OwnedShares(True), sent=0)
    looked(broker, OwnedShares(True, (owned(grant()),)))
    assert broker.may_handle(grant(), FENCE - 0.1)
    assert not broker.may_handle(grant(), FENCE)


def test_a_look_before_the_first_heartbeat_allows_nothing():
    broker = Broker(TIMING)
    looked(broker, OwnedShares(True, (owned(grant()),)))
    assert not broker.may_handle(grant(), 0)


def test_a_look_at_what_is_ours_is_no_heartbeat():
    broker = Broker(TIMING)
    answered(broker, OwnedShares(True), sent=0)
    assert looked(broker, OwnedShares(True, (owned(grant()),))) == [Begin(grant())]
    assert looked(broker, OwnedShares(True, (owned(grant(), ShareState.REVOKING),))) == [
        Drain(grant(), timedelta(seconds=5))
    ]
    assert not broker.sure_for(FENCE)


def test_what_a_report_has_waited_in_the_stores_own_line_is_not_lost():
    broker = Broker(TIMING)
    answered(broker, OwnedShares(True, waited=timedelta(seconds=5)), sent=10)
    assert broker.sure_for(15) == FENCE


def test_a_share_granted_anew_and_revoked_while_the_former_consumption_was_ending_is_begun_and_drained():
    broker = Broker(TIMING)
    old, new = grant(generation=1), grant(generation=3)
    answered(broker, OwnedShares(True, (owned(old),)), sent=0)
    answered(broker, OwnedShares(True, (owned(new),)), sent=1)
    answered(broker, OwnedShares(True, (owned(new, ShareState.REVOKING),)), sent=2)
    broker.released(old)
    assert broker.succeeding(old.share) == [Begin(new), Drain(new, timedelta(seconds=5))]


def test_a_share_that_was_given_back_is_not_begun_again():
    broker = Broker(TIMING)
    answered(broker, OwnedShares(True, (owned(grant()),)), sent=0)
    broker.released(grant())
    assert broker.succeeding(grant().share) == []
