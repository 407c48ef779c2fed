"""Each invariant of streams: a history that violates it, and one that comes near."""

from __future__ import annotations

import signal

import pytest
from tests.torture.stream_stories import StreamTale, replaced

from holdfast.runtime.exit_code import ExitCode
from holdfast.torture.events import Exited
from holdfast.torture.streams.checker import STREAM_INVARIANTS
from holdfast.torture.streams.names import PARK, PLAIN, POISON
from holdfast.torture.streams.records import (
    AppendAnswered,
    AppendCalled,
    AppendedAt,
    AppendRefused,
    AppendUnknown,
    DumpedEvent,
    LeaderWrote,
)


def three(consumer: str = "") -> StreamTale:
    return (StreamTale(consumer) if consumer else StreamTale()).appended("a", "b", "a")


def taken_over(generation: int = 3) -> StreamTale:
    """The share goes from w1 (generation 1) to w2, which has generation 3."""
    tale = three().step(5, "granted", "free", generation=2, node="w1")
    return tale.step(5.1, "free", "granted", generation=generation, node="w2")


def test_a_run_in_which_all_went_well_is_clean():
    tale = three().committed(1, 0, 2).committed(2, 2, 3).seen(1.5, 2, effect=2).seen(3, 3, effect=3)

    assert tale.effect(1, 2, 3).checked().is_clean


def test_every_invariant_has_its_own_code():
    codes = [invariant.code for invariant in STREAM_INVARIANTS]

    assert sorted(set(codes)) == sorted(codes)
    assert {"I15", "I16", "I17", "I18"} <= set(codes)


# --- I15 --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("took", "broken"),
    [(0.01, ["I15"]), (0.6, [])],  # sent before the other was answered: it may have been written first
)
def test_a_committed_position_never_decreases(took, broken):
    tale = three().committed(1, 0, 3).committed(1.5, 0, 2, took=took).effect(1, 2, 3)

    assert tale.checked().broken == broken


def test_what_was_refused_is_no_position():
    assert three().committed(1, 0, 3).committed(1.5, 0, 2, verdict="lost").effect(1, 2, 3).checked().is_clean


def test_no_commit_is_answered_under_a_generation_that_was_passed():
    tale = taken_over().committed(6, 0, 2, generation=3).committed(6.5, 2, 3, generation=1)

    assert tale.effect(1, 2, generation=3, node="w2").effect(3, generation=3, node="w2").checked().broken == ["I15"]


def test_a_look_shows_no_position_below_what_was_answered():
    tale = three().committed(1, 0, 3).seen(2, 2, effect=2)

    assert tale.effect(1, 2, 3).checked().broken == ["I15"]


def test_effects_are_written_in_the_order_of_generations():
    tale = taken_over().effect(1, generation=3, node="w2").effect(2, generation=1).effect(3, generation=3, node="w2")

    assert tale.checked().broken == ["I15"]
    assert taken_over().effect(1).effect(2, 3, generation=3, node="w2").checked().is_clean


# --- I16 --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "effects",
    [
        (1, 2, 2, 3),  # twice
        (1, 3),  # one is missing
        (2, 1, 3),  # out of order
        (1, 2),  # the position is past what took effect
        (),
    ],
)
def test_every_event_takes_effect_once_and_in_order(effects):
    assert three().effect(*effects).checked().broken == ["I16"]


def test_an_effect_without_its_position_is_seen():
    assert three().effect(1, 2, 3).checked(position=2).broken == ["I16"]


def test_an_event_that_no_consumer_has_passed_in_the_end_is_seen():
    assert three().effect(1, 2).checked(position=2).broken == ["I16"]


@pytest.mark.parametrize(("effect", "broken"), [(2, []), (1, ["I16"]), (3, ["I16"])])
def test_at_any_time_effects_reach_to_the_position(effect, broken):
    assert three().seen(1, 2, effect=effect).effect(1, 2, 3).checked().broken == broken


def test_an_effect_names_the_event_at_its_position():
    tale = three().effect(1, 2, 3)

    assert replaced(tale, DumpedEvent, event="other").checked().broken == ["I1", "I3", "I16", "I20"]


def test_without_a_transaction_events_are_handled_at_least_once():
    tale = three(PLAIN).handled(1, 1).handled(1.1, 2).handled(1.2, 1).handled(1.3, 2).handled(1.4, 3)
    verdict = tale.checked()

    assert verdict.is_clean
    assert verdict.figures["repeated handlings"] == 2


@pytest.mark.parametrize("positions", [(1, 3, 2), (2, 1, 3), (1, 2)])
def test_without_a_transaction_an_event_is_not_handled_before_the_one_before_it(positions):
    tale = three(PLAIN)
    for number, position in enumerate(positions):
        tale.handled(1 + number / 10, position)

    assert tale.checked().broken == ["I16"]


def test_a_node_that_was_frozen_may_handle_late_what_it_had_begun():
    tale = three(PLAIN).handled(1, 1).step(5, "granted", "free", generation=2, node="w1")
    tale.step(5.1, "free", "granted", generation=3, node="w2")
    tale.handled(5.2, 1, generation=3, node="w2").handled(5.3, 2, generation=1).handled(5.4, 2, generation=3, node="w2")

    assert tale.handled(5.5, 3, generation=3, node="w2").checked().is_clean


# --- I16: parked ------------------------------------------------------------------------------------------------------


def poisoned() -> StreamTale:
    """Streams a and b, each with two events; the first of a fails for good, the second waits behind it."""
    return StreamTale(PARK).appended("a", name=POISON).appended("b", "a", "b")


def test_what_fails_is_parked_with_all_that_stands_behind_it_in_its_stream():
    assert poisoned().parked(1, "a", "Poisoned").parked(3, "a").effect(2, 4).checked().is_clean


@pytest.mark.parametrize(
    "parks",
    [
        ((3, "a", ""),),  # the one that fails is not parked
        ((1, "a", "Poisoned"),),  # the one behind it is not
        ((1, "a", "Poisoned"), (3, "a", "Poisoned")),  # the one behind it was tried
        ((1, "a", "Poisoned"), (3, "a", ""), (4, "b", "Poisoned")),  # one of another stream is parked
        ((1, "a", ""), (3, "a", "")),
    ],
)
def test_nothing_is_parked_for_nothing_and_nothing_overtakes_what_is_parked(parks):
    tale = poisoned().effect(2, 4)
    for park in parks:
        tale.parked(*park)

    assert tale.checked().broken == ["I16"]


@pytest.mark.parametrize("effects", [(2, 3, 4), (2,), (4, 2), (2, 4, 4), (1, 2, 4)])
def test_what_is_parked_takes_no_effect_and_all_else_does(effects):
    assert poisoned().parked(1, "a", "Poisoned").parked(3, "a").effect(*effects).checked().broken == ["I16"]


# --- I17 --------------------------------------------------------------------------------------------------------------


def test_a_share_goes_from_owner_to_owner_only_by_way_of_free():
    assert taken_over().effect(1, 2, 3, generation=3, node="w2").checked().is_clean
    tale = three().step(5, "free", "granted", generation=2, node="w2")

    assert tale.effect(1, 2, 3).checked().broken == ["I17"]


def test_a_step_from_owner_to_owner_is_none():
    tale = three().step(5, "granted", "granted", generation=2, node="w2")

    assert tale.effect(1, 2, 3).checked().broken == ["I17"]


def test_what_came_between_may_have_been_forgotten_by_the_store():
    tale = three().step(5, "free", "granted", generation=3, node="w2", skips=1)

    assert tale.effect(1, 2, 3, generation=3, node="w2").checked().is_clean


@pytest.mark.parametrize(("generation", "broken"), [(3, []), (2, ["I17"])])
def test_every_grant_has_a_larger_generation(generation, broken):
    assert taken_over(generation).effect(1, 2, 3).checked().broken == broken


def test_nobody_works_under_the_generation_of_another():
    assert taken_over().effect(1, 2, 3, generation=3, node="w1").checked().broken == ["I17"]


def test_a_node_under_a_supervisor_goes_by_its_number_too():
    tale = three().step(5, "granted", "free", generation=2, node="w1")
    tale.step(5.1, "free", "granted", generation=3, node="w2.1")

    assert tale.effect(1, 2, 3, generation=3, node="w2").checked().is_clean


@pytest.mark.parametrize(("at", "broken"), [(13.5, []), (14.5, ["I17"])])
def test_every_share_is_owned_again_soon_after_the_faults(at, broken):
    tale = three().seen(1, 0, effect=0).over(10).seen(at, 0, effect=0, state="free").seen(20, 3, effect=3)

    assert tale.effect(1, 2, 3).checked().broken == broken


# --- I18 --------------------------------------------------------------------------------------------------------------


def test_an_epoch_has_one_leader():
    assert three().led(2, "w2", epoch=2).effect(1, 2, 3).checked().is_clean
    assert three().led(2, "w2", epoch=1).effect(1, 2, 3).checked().broken == ["I18"]


@pytest.mark.parametrize(("took", "broken"), [(0.01, ["I18"]), (1.5, [])])
def test_a_leader_writes_under_the_greatest_epoch(took, broken):
    tale = three().led(2, "w2", epoch=2)
    tale.add(3, LeaderWrote, epoch=1, moves=1, sent_us=tale.us(3 - took))

    assert tale.effect(1, 2, 3).checked().broken == broken


@pytest.mark.parametrize(("epoch", "broken"), [(2, []), (1, ["I18"])])
def test_no_step_is_taken_under_an_epoch_that_was_passed(epoch, broken):
    tale = three().led(2, "w2", epoch=2).step(5, "granted", "free", generation=2, node="w1", epoch=2)
    tale.step(5.1, "free", "granted", generation=3, node="w2", epoch=epoch)

    assert tale.effect(1, 2, 3, generation=3, node="w2").checked().broken == broken


def test_what_an_owner_does_needs_no_epoch():
    tale = three().step(5, "granted", "free", generation=1, node="w1", epoch=0)

    assert tale.step(5.1, "free", "granted", generation=2, node="w2").effect(1, 2, 3).checked().is_clean


# --- I1, I3, I20, I21 -------------------------------------------------------------------------------------------------


def test_an_acknowledged_event_is_there():
    tale = three().effect(1, 2, 3).add(1, AppendCalled, call="c9", events=("e9",))
    place = AppendedAt("e9", tale.share["category"], 0, 4, 1, True)

    assert tale.add(1.1, AppendAnswered, call="c9", places=(place,)).checked().broken == ["I1"]


def test_an_event_lies_where_the_answer_says():
    tale = three().effect(1, 2, 3)
    place = AppendedAt("e1", tale.share["category"], 0, 2, 1, False)

    assert tale.add(1.1, AppendAnswered, call="c1", places=(place,)).checked().broken == ["I1"]


def test_an_event_whose_append_is_unknown_may_be_there_or_not():
    tale = three().add(1, AppendCalled, call="c9", events=("e9",)).add(1.1, AppendUnknown, call="c9", error="cut")

    assert tale.effect(1, 2, 3).checked().is_clean


@pytest.mark.parametrize(("repeats", "broken"), [(False, ["I3"]), (True, [])])
def test_an_event_whose_append_was_rolled_back_is_not_there(repeats, broken):
    tale = three().effect(1, 2, 3, 4).add(1, AppendCalled, call="c9", events=("e4",))
    tale.add(1.1, AppendRefused, call="c9", error="rolled back").event("e4", 4, "c", 1)
    tale._events = 4
    if repeats:
        tale.add(2, AppendCalled, call="c10", events=("e4",))

    assert tale.checked().broken == broken


def test_an_append_of_many_is_there_as_a_whole():
    tale = three().effect(1, 2, 3).add(1, AppendCalled, call="c9", events=("e3", "e9"))

    assert tale.checked().broken == ["I20"]


def test_positions_have_no_holes():
    tale = three().effect(1, 2, 3)

    assert "I1" in replaced(tale, DumpedEvent, position=7).checked().broken


def test_nothing_is_left_when_all_nodes_have_ended():
    assert three().effect(1, 2, 3).checked(leases=1).broken == ["I21"]


@pytest.mark.parametrize(
    ("exited", "broken"),
    [
        ({"code": 1}, ["I21"]),
        ({"code": ExitCode.BROKEN}, ["I21"]),
        ({"signal": signal.SIGSEGV}, ["I21"]),
        ({"code": ExitCode.FINE}, []),
        ({"code": ExitCode.UNAVAILABLE}, []),
        ({"signal": signal.SIGKILL}, []),
        ({}, []),  # nobody has seen how
    ],
)
def test_no_node_ends_of_an_error_that_it_did_not_expect(exited, broken):
    tale = three().effect(1, 2, 3).add(4, Exited, process="worker-w2-12", **exited)

    assert tale.checked().broken == broken


def test_the_history_of_the_share_is_told():
    tale = three().committed(1, 0, 3).effect(1, 3)

    assert "position_committed" in tale.checked().timeline
