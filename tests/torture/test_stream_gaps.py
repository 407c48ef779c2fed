"""Histories whose positions have gaps, as in Kafka: the checker counts events, and still finds what is missing."""

from __future__ import annotations

from typing import Any

from tests.torture.stream_stories import BEGIN, SECOND, StreamTale

from holdfast.torture.events import RunBegan
from holdfast.torture.streams.records import AppendAnswered, AppendCalled, AppendedAt, StreamEffectRow

PLACES = {"e1": 1, "e2": 2, "e4": 4, "e7": 7}
"""Positions 3, 5 and 6 are markers and an aborted record."""


def tale(**acknowledged: int) -> StreamTale:
    """Four events, with gaps between them; some acknowledged at another place."""
    told = StreamTale()
    settings: dict[str, Any] = {"seed": 1, "store": "sqlite", "lease_us": 2 * SECOND, "recovery_us": 4 * SECOND}
    told.records[0] = ("conductor", RunBegan(at_us=BEGIN, has_gaps=True, **settings))
    told.add(0.3, AppendCalled, call="c-1", events=tuple(PLACES))
    told._events = len(PLACES)
    places = []
    for event, position in PLACES.items():
        told.event(event, position, "a", 0)
        answered = acknowledged.get(event, position)
        places.append(AppendedAt(event, told.share["category"], 0, answered, 0, True))
    return told.add(0.4, AppendAnswered, call="c-1", places=tuple(places))


def effects(told: StreamTale, **positions: int) -> StreamTale:
    for number, (event, position) in enumerate(positions.items(), 1):
        row: dict[str, Any] = {"position": position, "event": event, "node": "w1", "number": number}
        told.add(91, StreamEffectRow, generation=1, **row, **told.share)
    return told


def test_gaps_are_no_losses():
    told = effects(tale(), **PLACES).committed(1, 0, 4).committed(2, 4, 8).seen(1.5, 6, effect=4)

    assert told.checked(position=8).is_clean


def test_an_event_without_an_effect_is_found():
    told = effects(tale(), e1=1, e2=2, e7=7).committed(1, 0, 8)

    assert "I16" in told.checked(position=8).broken


def test_an_effect_at_a_place_without_an_event_is_found():
    told = effects(tale(), e1=1, e2=2, e4=5, e7=7).committed(1, 0, 8)

    assert "I16" in told.checked(position=8).broken


def test_an_acknowledgement_of_another_place_is_found():
    assert "I1" in effects(tale(e4=5), **PLACES).committed(1, 0, 8).checked(position=8).broken


def test_events_of_a_producer_in_another_order_are_found():
    told = effects(tale(), **PLACES).committed(1, 0, 8)
    later = AppendedAt("e1", told.share["category"], 0, 1, 0, True)
    told.add(0.5, AppendCalled, call="c-2", events=("e1",))
    told.add(0.6, AppendAnswered, call="c-2", places=(later,))

    assert "I1" in told.checked(position=8).broken
