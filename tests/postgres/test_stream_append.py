"""Appends on PostgreSQL: many at once, in the caller's own transaction, through a pooler, over a link that breaks."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from datetime import timedelta
from pathlib import Path

import msgspec
import psycopg
import pytest
from tests.postgres.callers import KINDS, Caller, calling
from tests.servers.missing import give_up
from tests.servers.pgbouncer import pooled
from tests.servers.postgres import NoServerError, parts_of

from holdfast.backends.postgres import streams as postgres_streams
from holdfast.backends.postgres.backend import PostgresBackend
from holdfast.errors import OutcomeUnknown, VersionConflict
from holdfast.store.backend import Backend
from holdfast.store.stream_values import Commit, CommitVerdict
from holdfast.testing.conformance.streams.base import (
    CATEGORY,
    NODE_A,
    TIMING,
    an_event,
    append,
    append_to,
    commit,
    consuming,
    read,
    stream_in,
)
from holdfast.testing.stores import open_store
from holdfast.torture.proxy import Proxy, When

LIMIT = timedelta(seconds=10)
SOME = postgres_streams.COPY_FROM + 50


@pytest.fixture
def pooler(url: str, tmp_path: Path) -> Iterator[str]:
    try:
        with pooled(url, tmp_path) as pooled_url:
            yield pooled_url
    except NoServerError as error:
        give_up("PgBouncer", str(error))


@pytest.fixture
def proxy(url: str) -> Iterator[Proxy]:
    proxy = Proxy(url)
    yield proxy
    proxy.close()


# --- many at once -----------------------------------------------------------------------------------------------------


async def test_events_that_are_copied_in_lie_where_single_appends_would_have_put_them(backend: Backend, monkeypatch):
    await backend.streams.events.open_category(CATEGORY, 3)
    await backend.streams.events.open_category("sales", 3)
    events = [
        an_event(f"s{n % 7} ä", category=(CATEGORY, "sales")[n % 5 == 0], headers={"n": str(n)} if n % 3 else None)
        for n in range(SOME)
    ]
    places = await backend.streams.events.append(events)
    again = [msgspec.structs.replace(event, id=an_event().id) for event in events]
    monkeypatch.setattr(postgres_streams, "COPY_FROM", 10**9)
    by_statement = await backend.streams.events.append(again)
    heads = {
        (view.name, n): head // 2
        for view in await backend.streams.events.categories()
        for n, head in enumerate(view.heads)
    }
    streams: dict[tuple[str, str], int] = {}
    for event in events:
        streams[event.category, event.stream] = streams.get((event.category, event.stream), 0) + 1
    assert [
        (
            event.partition_id,
            event.position - heads[given.category, event.partition_id],
            event.version - streams[given.category, given.stream],
        )
        for given, event in zip(events, by_statement, strict=True)
    ] == [(place.partition_id, place.position, place.version) for place in places]
    stored = await read(backend, CATEGORY, places[1].partition_id)
    half = len(stored) // 2
    alike = {"id": "", "version": 0, "position": 0, "recorded_us": 0}
    assert [msgspec.structs.replace(event, **alike) for event in stored[:half]] == [
        msgspec.structs.replace(event, **alike) for event in stored[half:]
    ]


async def test_of_many_events_those_that_are_known_are_left_and_an_id_given_twice_is_written_once(backend: Backend):
    await backend.streams.events.open_category(CATEGORY, 1)
    known = an_event("a")
    await append(backend, known)
    twice = an_event("a")
    events = [known, twice, *(an_event("b") for _ in range(SOME)), twice]
    places = await backend.streams.events.append(events)
    assert [place.is_new for place in places] == [False, True, *[True] * SOME, False]
    assert [place.position for place in places] == [1, *range(2, SOME + 3), 2]
    assert [place.is_new for place in await backend.streams.events.append(events)] == [False] * (SOME + 3)
    assert len(await backend.streams.events.read(CATEGORY, 0, after=0, limit=10**6)) == SOME + 2


async def test_of_many_events_none_is_written_if_one_is_in_conflict(backend: Backend):
    await backend.streams.events.open_category(CATEGORY, 1)
    await append_to(backend, "a")
    events = [*(an_event("b") for _ in range(SOME)), an_event("a", expected_version=0)]
    with pytest.raises(VersionConflict) as conflict:
        await backend.streams.events.append(events)
    assert (conflict.value.stream, conflict.value.expected, conflict.value.actual) == ("a", 0, 1)
    assert len(await read(backend)) == 1


async def test_large_and_small_appends_beside_one_another_leave_no_hole(backend: Backend):
    await backend.streams.events.open_category(CATEGORY, 2)
    names = [stream_in(0, 2), stream_in(1, 2)]
    sizes = [SOME, 1, 2, SOME, 7, 1]
    await asyncio.gather(
        *(
            backend.streams.events.append([an_event(names[(n + k) % 2]) for k in range(size)])
            for n, size in enumerate(sizes * 2)
        )
    )
    (view,) = await backend.streams.events.categories()
    assert view.appended == 2 * sum(sizes)
    for number, head in enumerate(view.heads):
        stored = await backend.streams.events.read(CATEGORY, number, after=0, limit=10**6)
        assert [event.position for event in stored] == list(range(1, head + 1))
        assert [event.version for event in stored] == list(range(1, head + 1))
        assert [event.recorded_us for event in stored] == sorted(event.recorded_us for event in stored)


async def test_an_id_that_is_appended_to_two_partitions_at_once_is_written_once(backend: Backend, url: str):
    await backend.streams.events.open_category(CATEGORY, 2)
    async with open_store(url) as other:
        for _ in range(10):
            first = an_event(stream_in(0, 2))
            second = msgspec.structs.replace(first, stream=stream_in(1, 2))
            answers = await asyncio.gather(
                *(each.streams.events.append([event]) for each in (backend, other) for event in (first, second))
            )
            assert sorted(place.is_new for (place,) in answers) == [False, False, False, True]
            assert len({(place.partition_id, place.position) for (place,) in answers}) == 1


@pytest.mark.parametrize("number", [1, 5])
async def test_an_append_is_one_round_trip(backend: Backend, tmp_path: Path, number: int):
    assert isinstance(backend, PostgresBackend)
    await backend.streams.events.open_category(CATEGORY, 1)
    events = [[an_event("a", headers={"a": "b"}) for _ in range(number)] for _ in range(2)]
    await backend.streams.events.append(events[0])  # what has to be prepared is prepared
    (session,) = backend._parts.here._pools[0].here._idle
    with (tmp_path / "trace").open("w+") as trace:
        session.pgconn.trace(trace.fileno())
        await backend.streams.events.append(events[1])
        session.pgconn.untrace()
        trace.seek(0)
        answers = [line for line in trace if "ReadyForQuery" in line]
    assert len(answers) == 1


async def test_an_append_that_is_cancelled_while_it_waits_writes_nothing_and_the_next_one_does(
    backend: Backend, url: str
):
    server, schema = parts_of(url)
    await backend.streams.events.open_category(CATEGORY, 1)
    await append_to(backend, "a")
    with psycopg.connect(server) as holder:
        holder.execute(f"select * from {schema}.head for update".encode())  # noqa: S608 - names of this test
        batches = [[an_event("a") for _ in range(number)] for number in (1, SOME)]
        waiting = [asyncio.create_task(backend.streams.events.append(batch)) for batch in batches]
        await asyncio.wait(waiting, timeout=0.3)
        assert not any(task.done() for task in waiting)
        for task in waiting:
            task.cancel()
        await asyncio.wait(waiting)
        assert all(task.cancelled() for task in waiting)
    assert [place.position for place in await append(backend, an_event("a"))] == [2]
    assert len(await read(backend)) == 2


# --- hints ------------------------------------------------------------------------------------------------------------


async def test_an_append_hints_and_one_inside_a_handlers_transaction_hints_when_that_commits(
    backend: Backend, monkeypatch: pytest.MonkeyPatch
):
    assert isinstance(backend, PostgresBackend)
    grant = await consuming(backend, "a")
    hints: list[bool] = []
    monkeypatch.setattr(backend.notifier, "notify", lambda: hints.append(True))
    streams = backend.streams
    await streams.events.append([an_event("b")])
    assert hints == [True]
    async with backend.streams.consumers.begin(grant, limit=LIMIT):
        await streams.events.append([an_event("b")])
        assert hints == [True]
    assert hints == [True, True]


# --- in the caller's own transaction ----------------------------------------------------------------------------------


@pytest.fixture(params=KINDS, ids=lambda kind: kind.__name__)
async def caller(request: pytest.FixtureRequest, url: str) -> AsyncIterator[Caller]:
    async with calling(request.param, parts_of(url)[0]) as caller:
        yield caller


@pytest.mark.parametrize("commits", [True, False], ids=["committed", "rolled back"])
async def test_events_share_the_fate_of_the_callers_transaction(backend: Backend, caller: Caller, commits: bool):
    await backend.streams.events.open_category(CATEGORY, 2)
    await caller.begin()
    joined = backend.streams.join(caller.using)
    event = an_event("ä \\ \" {,} '")
    events = [event, an_event("b", headers={"a": 'b "c"'}), an_event("b", category="new")]
    places = await joined.append(events)
    assert [place.is_new for place in places] == [True] * 3
    assert [place.is_new for place in await joined.append([event])] == [False]
    with pytest.raises(VersionConflict):
        await joined.append([an_event("b", expected_version=0)])
    assert (await joined.append([an_event("b", expected_version=1)]))[0].version == 2
    assert [each.stream for each in await joined.read_stream(CATEGORY, event.stream, limit=9)] == [event.stream]
    await (caller.commit() if commits else caller.rollback())
    assert await backend.streams.events.stream_version(CATEGORY, "b") == (2 if commits else 0)
    assert len(await backend.streams.events.categories()) == (2 if commits else 1)
    assert [place.is_new for place in await backend.streams.events.append(events)] == [not commits] * 3


# --- through a pooler -------------------------------------------------------------------------------------------------


async def test_streams_work_through_a_pooler(pooler: str):
    async with open_store(pooler) as first, open_store(pooler) as second:
        grant = await consuming(first, "a")
        await asyncio.gather(
            *(each.streams.events.append([an_event("b"), an_event("c")]) for each in (first, second) * 20)
        )
        await second.streams.events.append([an_event("d") for _ in range(SOME)])
        with pytest.raises(VersionConflict):
            await second.streams.events.append([an_event("a", expected_version=7)])
        fetched = await second.streams.consumers.fetch(grant, after=0, limit=1000)
        assert [event.position for event in fetched.events] == list(range(1, 82 + SOME))
        async with second.streams.consumers.begin(grant, limit=LIMIT) as transaction:
            await append_to(second, "e")
            assert await transaction.commit(grant, Commit(0, 5)) is CommitVerdict.DONE
        assert (await second.streams.allocations.heartbeat(NODE_A, TIMING)).owned[0].grant == grant
        assert await commit(first, grant, 5, 6) is CommitVerdict.DONE
        assert await first.streams.consumers.verify(grant) == 6


# --- over a link that breaks ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [1, 5, SOME])
@pytest.mark.parametrize("when", ["before", "after"])
async def test_an_append_whose_commit_was_cut_is_repeated_with_the_same_ids_and_writes_each_event_once(
    backend: Backend, proxy: Proxy, when: When, number: int
):
    await backend.streams.events.open_category(CATEGORY, 1)
    events = [an_event("a", expected_version=1), *(an_event("a") for _ in range(number - 1))]
    await append_to(backend, "a")
    async with open_store(proxy.url) as far:
        await append_to(far, "b")  # what is prepared is not cut
        await far.streams.events.append([an_event("b"), an_event("b")])
        proxy.arm(when)
        with pytest.raises(OutcomeUnknown):
            await far.streams.events.append(events)
        proxy.disarm()
        places = await far.streams.events.append(events)
    assert [place.version for place in places] == list(range(2, number + 2))
    assert await backend.streams.events.stream_version(CATEGORY, "a") == number + 1


@pytest.mark.parametrize(("when", "position"), [("before", 0), ("after", 1)])
async def test_a_cut_at_the_commit_of_a_consumers_transaction_is_told_and_verify_resolves_it(
    backend: Backend, proxy: Proxy, when: When, position: int
):
    grant = await consuming(backend, *"ab")
    async with open_store(proxy.url) as far:
        with pytest.raises(OutcomeUnknown):  # noqa: PT012 - what a transaction raises is raised out of its block
            async with far.streams.consumers.begin(grant, limit=LIMIT) as transaction:
                proxy.arm(when)
                await transaction.commit(grant, Commit(0, 1))
        assert await far.streams.consumers.verify(grant) == position
        assert await commit(far, grant, position, 2) is CommitVerdict.DONE


async def test_the_script_of_the_schema_ends_at_the_version_that_is_checked(backend: Backend, url: str):
    server, schema = parts_of(url)
    script = backend.schema.script().replace(f'"{schema}"', f'"{schema}_2"')
    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute(script.encode())
        try:
            async with open_store(url.replace(schema, f"{schema}_2")) as other:
                await other.schema.check()
                assert [place.position for place in await append(other, an_event("a"))] == [1]
        finally:
            connection.execute(f'drop schema "{schema}_2" cascade'.encode())
