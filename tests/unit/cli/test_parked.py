"""Parked events: listed, retried and dropped."""

from __future__ import annotations

import pytest
from tests.unit.cli.conftest import KEPT, park


@pytest.fixture
def parked(streams):
    """Two events that `billing` has parked."""
    park(streams)
    return streams


def _ids(shop) -> list[str]:
    return [event["event_id"] for event in shop.json("consumer", "parked", "billing")["parked"]]


def test_parked_events_are_listed_with_what_befell_them(parked):
    first, second = parked.json("consumer", "parked", "billing")["parked"]
    assert (first["position"], first["attempts"], first["message"]) == (1, 3, "cannot bill")
    assert second["error_class"] is None
    table = parked.run("consumer", "parked", "billing").stdout
    assert f"{KEPT}: cannot bill" in table
    assert "waits behind another event of its stream" in table


def test_a_consumer_that_has_parked_nothing_says_so(streams):
    assert "has no parked events" in streams.run("consumer", "parked", "billing").stderr


def test_parked_events_are_retried(parked):
    assert parked.run("consumer", "retry", "billing").stdout == "2 events of billing will be handled again\n"
    assert parked.json("consumer", "parked", "billing")["parked"][0]["is_retrying"] is True


@pytest.mark.parametrize("verb", ["retry", "drop"])
def test_where_nothing_is_parked_nothing_can_be_done_and_that_is_told(streams, verb):
    assert streams.run("consumer", verb, "billing", code=1).stderr == "Error: billing has no parked events\n"


@pytest.mark.parametrize("verb", ["retry", "drop"])
def test_a_stream_of_which_nothing_is_parked_is_an_error_with_the_remedy(parked, verb):
    told = parked.run("consumer", verb, "billing", "--stream", "nosuch", code=1)
    assert told.stdout == ""
    assert told.stderr == (
        "Error: billing has no parked events of the stream nosuch\n"
        "List its parked events: holdfast consumer parked billing\n"
    )
    assert len(_ids(parked)) == 2


@pytest.mark.parametrize("verb", ["retry", "drop"])
def test_what_is_parked_by_a_consumer_that_nobody_knows_is_an_error(streams, verb):
    assert "no consumer 'billling'" in streams.run("consumer", verb, "billling", code=1).stderr


@pytest.mark.parametrize(
    ("words", "question"),
    [
        ((), "Drop all 2 parked events of billing?"),
        (("--stream", "order-1"), "Drop all 2 parked events of billing in the stream order-1?"),
    ],
)
def test_to_drop_is_asked_with_the_count_before(parked, words, question):
    assert question in parked.run("consumer", "drop", "billing", *words, code=2).stderr
    assert len(_ids(parked)) == 2
    assert parked.run("consumer", "drop", "billing", *words, "--yes").stdout == "2 parked events of billing dropped\n"
    assert _ids(parked) == []


def test_an_event_may_be_shortened_and_the_question_names_it_whole(parked):
    first, second = _ids(parked)
    told = parked.run("consumer", "drop", "billing", "--event", first[:-1].upper(), code=2).stderr
    assert f"Drop the parked event {first} of billing in the stream order-1?" in told
    dropped = parked.run("consumer", "drop", "billing", "--event", first[:-1], "--yes").stdout
    assert dropped == "1 parked event of billing dropped\n"
    assert _ids(parked) == [second]
    assert "Drop the 1 parked event of billing?" in parked.run("consumer", "drop", "billing", code=2).stderr


def test_a_beginning_of_several_events_is_refused_with_the_candidates_and_nothing_is_dropped(parked):
    ids = _ids(parked)
    told = parked.run("consumer", "drop", "billing", "--event", ids[0][:8], "--yes", code=2).stderr
    assert "matches several event ids" in told
    assert all(event_id in told for event_id in ids)
    assert _ids(parked) == ids


@pytest.mark.parametrize(
    ("given", "code", "told"),
    [
        ("ffff", 1, "billing has no parked event whose id starts or ends with ffff"),
        (
            "01a1de74-f9de-73e7-ae13-34169fbd9dbf",
            1,
            "no parked event whose id starts or ends with 01a1de74-f9de-",
        ),
        ("xyz", 2, "'xyz' is not a valid event id, nor the beginning of one"),
    ],
)
def test_an_event_that_is_not_parked_is_told(parked, given, code, told):
    assert told in parked.run("consumer", "drop", "billing", "--event", given, "--yes", code=code).stderr
    assert len(_ids(parked)) == 2


def test_an_event_and_a_stream_must_both_fit(parked):
    first, _ = _ids(parked)
    words = ("consumer", "drop", "billing", "--event", first, "--stream")
    parked.run(*words, "order-2", "--yes", code=1)
    assert "1 parked event" in parked.run(*words, "order-1", "--yes").stdout


def test_more_parked_events_than_a_page_holds_are_all_counted(parked, monkeypatch):
    monkeypatch.setattr("holdfast.cli.consumer_parked._PAGE", 1)
    assert "all 2 parked" in parked.run("consumer", "drop", "billing", "--stream", "order-1", code=2).stderr


def test_yes_is_explained_by_what_the_command_asks(shop):
    for verb in ("reset", "drop", "forget"):
        told = shop.run("consumer", verb, "--help").stdout
        assert "jobs" not in told
        assert "Do not ask for confirmation" in told
