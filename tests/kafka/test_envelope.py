"""An event as a record, and any record as an event."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as some

from holdfast import ConfigError, PayloadError
from holdfast.backends.kafka.envelope import ID, NAME, VERSION, check_headers, event_of, headers_of
from holdfast.model.event import NewEvent
from holdfast.model.ids import new_id
from holdfast.streams.event import Event

OWN: list[tuple[str, bytes | None]] = [
    *((ID, value) for value in (b"00000000-0000-0000-0000-000000000001", b"\xff", None)),
    *((NAME, value) for value in (b"placed", b"pla\nced", b"\xff", None)),
    *((VERSION, b"7"), ("by", b"shop")),
]


class Message:
    """A record as the client returns it."""

    def __init__(
        self,
        key: bytes | None,
        value: bytes | None,
        headers: Any = None,
        offset: int = 0,
        millis: int = 1_700_000_000_123,
    ) -> None:
        self.key = lambda: key
        self.value = lambda: value
        self.headers = lambda: headers
        self.partition = lambda: 3
        self.offset = lambda: offset
        self.timestamp = lambda: (1, millis)


def test_an_event_round_trips():
    new = NewEvent(new_id(), "orders", "order-ä", "placed", '{"n": 1}', {"traceparent": "00-1"})
    headers = [(name, str(text).encode()) for name, text in headers_of(new).items()]

    found = event_of("orders", "id", Message(new.stream.encode(), new.payload.encode(), headers, offset=41))

    assert (found.id, found.stream, found.name, found.payload, found.headers) == (
        *(new.id, new.stream, new.name, new.payload),
        new.headers,
    )
    assert (found.partition_id, found.position, found.version, found.recorded_us) == (3, 42, 0, 1_700_000_000_123_000)


def test_no_header_of_an_event_replaces_one_of_holdfast():
    new = NewEvent(new_id(), "orders", "a", "placed", "1", {"holdfast-id": "x", "holdfast-name": "y", "by": "shop"})

    assert headers_of(new, 7) == {
        "holdfast-id": new.id,
        "holdfast-name": "placed",
        "holdfast-version": "7",
        "by": "shop",
    }
    with pytest.raises(ConfigError, match="headers holdfast-id, holdfast-name: in Kafka, names that begin with"):
        check_headers(new)


def test_the_id_of_a_foreign_record_depends_on_its_place_alone():
    ids = [event_of("orders", "id", Message(b"a", b"1", offset=offset)).id for offset in (1, 1, 2)]

    assert ids[0] == ids[1] != ids[2]
    assert event_of("orders", "another topic", Message(b"a", b"1", offset=1)).id != ids[0]


@given(
    some.none() | some.binary(max_size=30),
    some.none() | some.binary(max_size=30),
    some.none() | some.lists(some.tuples(some.text(max_size=9), some.none() | some.binary(max_size=9)), max_size=3),
)
def test_any_bytes_make_an_event(key: bytes | None, value: bytes | None, headers: Any):
    found = event_of("orders", "id", Message(key, value, headers))

    assert str(UUID(found.id)) == found.id
    found.stream.encode()
    found.payload.encode()
    assert found.name
    assert found.content == (b"null" if value is None else value)


@given(some.lists(some.sampled_from(OWN), max_size=4), some.booleans())
def test_headers_in_any_order_mean_the_same(headers: list[tuple[str, bytes | None]], is_reversed: bool):
    headers = headers[::-1] if is_reversed else headers
    by_name = {name: (value or b"").decode("utf-8", "replace") for name, value in headers}  # the last one counts

    found = event_of("orders", "id", Message(b"a", b"1", headers))

    shown = [("by", b"shop"), *((name, text.encode()) for name, text in by_name.items())]
    plain = event_of("orders", "id", Message(b"a", b"1", shown))
    assert (found.id, found.name, found.version) == (plain.id, plain.name, plain.version)
    assert found.headers == ({"by": by_name["by"]} if "by" in by_name else None)


@pytest.mark.parametrize(
    ("value", "shown"),
    [(b"\xff", "~b64:/w=="), (b'"\xff"', "~b64:Iv8i"), (b"~b64:", "~b64:fmI2NDo="), (b"{", "{"), (b"", ""), (b"7", 7)],
)
def test_bytes_that_are_no_json_fail_only_when_they_are_decoded(value: bytes, shown: Any):
    event = Event(event_of("orders", "id", Message(b"a", value)))

    assert (event.content, event.payload_or_text) == (value, shown)
    if value != b"7":
        with pytest.raises(PayloadError):
            _ = event.payload


@pytest.mark.parametrize(("millis", "year"), [(-1, 1970), (0, 1970), (4_102_444_800_000, 2100), (2**63 - 1, 9999)])
def test_any_time_of_a_producer_is_an_instant(millis: int, year: int):
    assert event_of("orders", "id", Message(b"a", b"1", millis=millis)).recorded_at.year == year


def test_no_value_is_null():
    assert Event(event_of("orders", "id", Message(b"a", None))).payload is None
