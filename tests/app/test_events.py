"""Append and read through the app: what comes back, and what is refused."""

from __future__ import annotations

import sqlite3
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from uuid import UUID, uuid4

import pytest

from holdfast import CategoryNotFound, ConfigError, PayloadError, VersionConflict


async def fill(app, *names: str, category: str = "orders", stream: str = "order-1") -> None:
    await app.append_many(category, [{"stream": stream, "name": name, "payload": {"is": name}} for name in names])


async def test_an_event_comes_back_as_it_was_appended(app):
    place = await app.append(
        "orders", stream="order-1", name="placed", payload={"total": 7}, headers={"trace": "t1"}, expected_version=0
    )
    (event,) = await app.read("orders", stream="order-1")
    assert (event.id, event.version, event.position) == (place.id, 1, place.position)
    assert (event.category, event.stream, event.name) == ("orders", "order-1", "placed")
    assert (event.payload, event.headers) == ({"total": 7}, {"trace": "t1"})
    assert datetime.now(UTC) - event.recorded_at < timedelta(minutes=1)
    assert event.decode(dict[str, int]) == {"total": 7}


async def test_an_append_to_another_version_than_expected_writes_nothing_and_tells_the_actual_one(app):
    await fill(app, "a", "b")
    with pytest.raises(VersionConflict) as refused:
        await app.append("orders", stream="order-1", name="c", expected_version=1)
    assert (refused.value.expected, refused.value.actual) == (1, 2)
    assert [event.name for event in await app.read("orders", stream="order-1")] == ["a", "b"]


async def test_a_repeat_under_the_same_id_changes_nothing(app):
    event_id = str(uuid4())
    first = await app.append("orders", stream="order-1", name="placed", event_id=event_id, expected_version=0)
    again = await app.append("orders", stream="order-1", name="placed", event_id=event_id, expected_version=0)
    assert (first.is_new, again.is_new) == (True, False)
    assert (again.version, again.position) == (first.version, first.position)


async def test_of_many_all_or_none_are_appended(app):
    events = [{"stream": "a", "name": "n"}, {"stream": "b", "name": "n", "expected_version": 3}]
    with pytest.raises(VersionConflict):
        await app.append_many("orders", events)
    with pytest.raises(CategoryNotFound):
        await app.read("orders")


async def test_a_stream_is_read_in_pages_and_backwards(app):
    await fill(app, *"abcde")
    first = await app.read("orders", stream="order-1", limit=2)
    second = await app.read("orders", stream="order-1", limit=2, after=first.cursor)
    assert [event.name for event in (*first, *second)] == ["a", "b", "c", "d"]
    back = await app.read("orders", stream="order-1", limit=2, backwards=True)
    further = await app.read("orders", stream="order-1", limit=9, backwards=True, after=back.cursor)
    assert [event.name for event in (*back, *further)] == ["e", "d", "c", "b", "a"]
    assert [event.name for event in await app.read("orders", stream="order-1", after=3)] == ["d", "e"]


async def test_a_category_is_read_in_pages_without_a_hole_or_a_double(app):
    for stream in range(20):
        await fill(app, *"abc", stream=f"order-{stream}")
    seen: list[str] = []
    cursor = None
    while page := await app.read("orders", limit=7, after=cursor):
        seen += [event.id for event in page]
        cursor = page.cursor
    assert len(seen) == len(set(seen)) == 60
    await fill(app, "d", stream="order-3")
    assert [event.name for event in await app.read("orders", after=cursor)] == ["d"]


async def test_a_page_is_in_the_order_of_recording_however_uneven_the_partitions_are(app, monkeypatch):
    await app.category("orders", partitions=4)
    recorded: list[str] = []
    for round_ in range(3):
        for stream, count in (("many", 25), ("few", 2)):
            names = [f"{stream}-{round_}-{number}" for number in range(count)]
            await fill(app, *names, stream=stream)
            recorded += names
    portions: list[int] = []
    store = (await app.opened()).streams.events
    real = store.read

    async def counted(*args, **words):
        events = await real(*args, **words)
        portions.append(len(events))
        return events

    monkeypatch.setattr(store, "read", counted)
    assert [event.name for event in await app.read("orders", limit=70)] == recorded[:70]
    assert sum(portions) <= 70 + 4 * 18  # a portion of each partition too much at most, not a page of each


async def test_one_partition_is_read_from_a_position(app):
    await app.category("orders", partitions=1)
    await fill(app, *"abcd")
    page = await app.read("orders", partition_id=0, after=2)
    assert [event.position for event in page] == [3, 4]


async def test_a_category_is_read_from_a_time(app):
    await fill(app, "early")
    later = datetime.now(UTC) + timedelta(hours=1)
    assert [event.name for event in await app.read("orders", after=later - timedelta(hours=2))] == ["early"]
    assert list(await app.read("orders", after=later)) == []


async def test_the_log_is_all_categories(app):
    await fill(app, "a", category="orders")
    await fill(app, "b", category="companies")
    page = await app.read(log=True)
    assert sorted((event.category, event.name) for event in page) == [("companies", "b"), ("orders", "a")]
    await fill(app, "c", category="later")
    assert [event.name for event in await app.read(log=True, after=page.cursor)] == ["c"]


async def test_an_append_joins_the_callers_own_transaction(file_app):
    await file_app.opened()
    path = file_app.backend.url.removeprefix("sqlite:///").partition("?")[0]
    connection = sqlite3.connect(path, isolation_level=None)
    try:
        for ending, count in (("rollback", 0), ("commit", 1)):
            connection.execute("begin immediate")
            await file_app.append("orders", stream="order-1", name="placed", using=connection)
            connection.execute(ending)
            assert len(await file_app.read("orders", stream="order-1")) == count
    finally:
        connection.close()


@dataclass
class Paid:
    amount: Decimal
    at: datetime
    by: UUID


@pytest.mark.parametrize("form", [asdict, lambda paid: paid], ids=["a dict", "an object"])
async def test_what_json_does_not_have_is_kept_as_a_text_that_decode_makes_whole_again(app, form):
    paid = Paid(Decimal("12.50"), datetime(2026, 3, 1, tzinfo=UTC), UUID(int=7))

    await app.append("orders", stream="a", name="paid", payload=form(paid))

    (event,) = (await app.read("orders")).events
    assert event.payload == {"amount": "12.50", "at": "2026-03-01T00:00:00Z", "by": str(UUID(int=7))}
    assert event.decode(Paid) == paid


async def test_the_number_of_partitions_is_fixed(app):
    assert (await app.category("orders", partitions=3)).partitions == 3
    assert (await app.category("orders")).partitions == 3
    with pytest.raises(ConfigError, match="which cannot be changed"):
        await app.category("orders", partitions=4)
    with pytest.raises(ConfigError, match="from 1 to"):
        await app.category("others", partitions=0)


@pytest.mark.parametrize(
    ("event", "error", "says"),
    [
        ({"name": "n"}, ConfigError, "lacks a stream or a name"),
        ({"stream": "s", "name": "n", "nmae": 1}, ConfigError, "has unknown fields: nmae"),
        ({"stream": "", "name": "n"}, ConfigError, "1 to 255"),
        ({"stream": "a\0b", "name": "n"}, ConfigError, "non-printable characters"),
        ({"stream": "\ud800", "name": "n"}, ConfigError, "non-printable characters"),
        ({"stream": 7, "name": "n"}, ConfigError, "not a string"),
        ({"stream": "s" * 256, "name": "n"}, ConfigError, "256 characters"),
        ({"stream": "s", "name": "not a name"}, ConfigError, "is invalid"),
        ({"stream": "s", "name": "n", "payload": float("nan")}, PayloadError, "payload"),
        ({"stream": "s", "name": "n", "payload": "x" * 300_000}, PayloadError, "more than the limit"),
        ({"stream": "s", "name": "n", "headers": {"a": 1}}, PayloadError, "header"),
        ({"stream": "s", "name": "n", "expected_version": -1}, ConfigError, "expected_version"),
        ({"stream": "s", "name": "n", "event_id": "7"}, ConfigError, "is not a UUID"),
        ({"stream": "s", "name": "n", "category": "no name"}, ConfigError, "category name"),
    ],
    ids=lambda value: str(value)[:30] if isinstance(value, dict) else "",
)
async def test_an_event_that_cannot_be_is_refused_and_names_itself_among_many(app, event, error, says):
    good = {"stream": "s", "name": "n"}
    with pytest.raises(error, match=says):
        await app.append_many("orders", [event])
    with pytest.raises(error, match="event 1 of 2"):
        await app.append_many("orders", [good, event])
    with pytest.raises(CategoryNotFound):
        await app.read("orders")


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ({}, "pass a category"),
        ({"category": "orders", "log": True}, "pass a category"),
        ({"category": "orders", "backwards": True}, "only a stream can be read backwards"),
        ({"category": "orders", "after": "nonsense"}, "is invalid: pass page.cursor"),
        ({"category": "orders", "stream": "s", "after": "x"}, "is invalid: pass page.cursor"),
        ({"category": "orders", "after": datetime(2026, 1, 1)}, "no time zone"),  # noqa: DTZ001 - that is the point
        ({"category": "orders", "limit": 0}, "limit=0"),
    ],
)
async def test_a_read_that_makes_no_sense_is_refused_with_the_remedy(app, words, says):
    await fill(app, "a")
    with pytest.raises(ConfigError, match=says):
        await app.read(**words)


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({}, "reads nothing"),
        ({"category": "orders", "log": True}, "omit category and stream"),
        ({"category": "orders", "on_error": "explode"}, "on_error"),
        ({"category": "orders", "start": "middle"}, "invalid start"),
        ({"category": "orders", "start": datetime(2026, 1, 1)}, "no time zone"),  # noqa: DTZ001 - that is the point
        ({"category": "orders", "batch": 0}, "batch=0"),
        ({"category": "orders", "colour": "red"}, "colour"),
        ({"category": "orders", "poll_interval": -1}, "poll_interval"),
    ],
)
async def test_a_consumer_that_cannot_work_is_refused_where_it_is_declared(app, settings, says):
    with pytest.raises(ConfigError, match=says):

        @app.consumer("billing", **settings)
        async def billing(event) -> None: ...


async def test_two_consumers_of_one_name_and_handlers_of_the_wrong_shape_are_refused(app):
    @app.consumer("billing", category="orders")
    async def billing(event) -> None: ...

    with pytest.raises(ConfigError, match="already"):
        app.consumer("billing", category="orders")(billing)
    with pytest.raises(ConfigError, match="must take an event"):
        app.consumer("other", category="orders")(lambda: None)
    with pytest.raises(ConfigError, match="cannot be stopped"):
        app.consumer("slow", category="orders", timeout=3)(lambda event: None)
