"""Events whose handler fails: blocked, skipped, parked."""

from __future__ import annotations

import asyncio
import time

import pytest
from tests.app.stream_work import QUICK, append, drained, eventually, query, running

from holdfast import Event, EventContext
from holdfast.store.stream_values import CommitVerdict
from holdfast.streams.effect import EventEffect


@pytest.fixture
async def app(file_app):
    await file_app.opened()
    return file_app


async def test_an_event_that_always_fails_blocks_its_partition_and_no_other(app):
    handled: list[str] = []

    @app.consumer("billing", category="orders", poll_interval=0.05, max_attempts=2, retry=0.01)
    async def billing(event: Event) -> None:
        if event.stream == "bad":
            raise ValueError("no")
        handled.append(event.stream)

    await app.category("orders", partitions=16)
    await append(app, "bad", 2)
    await append(app, "good", 3)
    async with running(app.node(timing=QUICK)):

        async def others():
            return len(handled) == 3 and (await app.consumers.show("billing")).lag == 2  # the position follows

        await eventually(others)


async def test_a_skipped_event_is_passed_over(app):
    handled: list[int] = []

    @app.consumer("billing", category="orders", poll_interval=0.05, max_attempts=2, retry=0.01, on_error="skip")
    async def billing(event: Event) -> None:
        if event.payload["n"] == 1:
            raise ValueError("no")
        handled.append(event.payload["n"])

    await append(app, "a", 3)
    async with running(app.node(timing=QUICK)):
        await eventually(drained(app))
    assert handled == [0, 2]


async def test_a_parked_event_holds_back_its_stream_alone_and_can_be_retried_in_order(app):
    handled: list[tuple[str, int]] = []
    healed = False

    @app.consumer("billing", category="orders", poll_interval=0.05, max_attempts=2, retry=0.01, on_error="park")
    async def billing(event: Event, ctx: EventContext) -> None:
        async with ctx.transaction():
            if event.stream == "a" and event.payload["n"] == 1 and not healed:
                raise ValueError("no")
            handled.append((event.stream, event.payload["n"]))

    await app.category("orders", partitions=1)
    await append(app, "a", 4)
    await append(app, "b", 2)
    async with running(app.node(timing=QUICK)):
        await eventually(drained(app))
        assert handled == [("a", 0), ("b", 0), ("b", 1)]
        parked = await app.consumers.parked("billing")
        assert [(each.stream, each.attempts) for each in parked] == [("a", 2), ("a", 0), ("a", 0)]
        assert parked[0].failure is not None
        assert parked[0].failure.error_class == "ValueError"
        assert await app.consumers.retry_parked("billing") == 3

        async def failed_again():
            first = (await app.consumers.parked("billing"))[0]
            return first.attempts == 3 and not first.is_retrying

        await eventually(failed_again)
        assert len(await app.consumers.parked("billing")) == 3
        healed = True
        await app.consumers.retry_parked("billing")

        async def flows():
            return not await app.consumers.parked("billing")

        await eventually(flows)
    assert [number for stream, number in handled if stream == "a"] == [0, 1, 2, 3]


async def test_dropped_parked_events_let_their_stream_flow_again(app):
    handled: list[int] = []

    @app.consumer("billing", category="orders", poll_interval=0.05, max_attempts=1, on_error="park")
    async def billing(event: Event) -> None:
        if event.payload["n"] == 0 and event.version == 1:
            raise ValueError("no")
        handled.append(event.version)

    await append(app, "a", 2)
    async with running(app.node(timing=QUICK)):
        await eventually(drained(app))
        assert await app.consumers.drop_parked("billing", stream="a") == 2
        await append(app, "a", 2)

        async def flows():
            return handled == [3, 4]

        await eventually(flows)


async def test_the_time_limit_of_an_event_ends_an_async_handler(app):
    tries: list[int] = []

    @app.consumer("billing", category="orders", poll_interval=0.05, retry=0.01, timeout=0.05)
    async def billing(event: Event, ctx: EventContext) -> None:
        tries.append(ctx.attempt)
        if ctx.attempt == 1:
            await asyncio.sleep(60)

    await append(app, "a", 1)
    async with running(app.node(timing=QUICK)):
        await eventually(drained(app))
    assert tries == [1, 2]


async def test_while_one_stream_is_retried_the_later_events_of_another_stay_behind_its_parked_one(app):
    handled: list[tuple[str, int]] = []
    entered, go_on = asyncio.Event(), asyncio.Event()

    @app.consumer("billing", category="orders", poll_interval=0.05, max_attempts=1, on_error="park")
    async def billing(event: Event) -> None:
        place = (event.stream, event.version)
        if place == ("gate", 1):
            entered.set()
            await go_on.wait()
        if place in {("a", 1), ("c", 1)} and place not in healed:
            raise ValueError("no")
        handled.append(place)

    healed: set[tuple[str, int]] = set()
    await app.category("orders", partitions=1)
    await append(app, "a", 1)
    await append(app, "c", 1)
    async with running(app.node(timing=QUICK)):
        await eventually(drained(app))
        await append(app, "gate", 1)
        await entered.wait()  # what comes now is met by one fetch: a retry, and an event behind another parked one
        healed.add(("a", 1))
        assert await app.consumers.retry_parked("billing", "a") == 1
        await append(app, "c", 1)
        go_on.set()

        async def retried():
            return ("a", 1) in handled

        await eventually(retried)
        await eventually(drained(app))
        parked = await app.consumers.parked("billing")
    assert [(each.stream, each.position) for each in parked] == [("c", 2), ("c", 4)]
    assert handled == [("gate", 1), ("a", 1)]


async def test_a_handler_that_returns_what_nobody_awaits_has_not_handled_its_event(app):
    async def handle(event: Event) -> None:
        raise AssertionError(event)

    @app.consumer("billing", category="orders", poll_interval=0.05, max_attempts=1, on_error="park")
    def billing(event: Event):
        return handle(event)  # as a decorator does that was not made for async functions

    await append(app, "a", 1)
    async with running(app.node(timing=QUICK)):
        await eventually(drained(app))
    (parked,) = await app.consumers.parked("billing")
    assert parked.failure.error_class == "holdfast.errors.ConfigError"
    assert "was never awaited" in parked.failure.message


async def test_a_handler_that_is_cancelled_by_its_own_code_has_failed(app):
    handled: list[int] = []

    @app.consumer("billing", category="orders", poll_interval=0.05, max_attempts=2, retry=0.01, on_error="skip")
    async def billing(event: Event) -> None:
        handled.append(event.version)
        if event.version == 2:
            inner = asyncio.ensure_future(asyncio.Event().wait())
            inner.cancel()
            await inner

    await append(app, "a", 3)
    async with running(app.node(timing=QUICK)):
        await eventually(drained(app))
    assert handled == [1, 2, 2, 3]


async def test_a_time_limit_that_passes_while_the_commit_is_under_way_is_no_failure(app, monkeypatch):
    handled: list[int] = []
    real = EventEffect.is_accepted

    def slow(effect: EventEffect, verdict: CommitVerdict) -> bool:
        accepted = real(effect, verdict)
        time.sleep(0.2)  # between the statement and the COMMIT: the limit passes here, and is heard in the COMMIT
        return accepted

    monkeypatch.setattr(EventEffect, "is_accepted", slow)

    @app.consumer("billing", category="orders", poll_interval=0.05, timeout=0.1, retry=0.01)
    async def billing(event: Event, ctx: EventContext) -> None:
        handled.append(event.version)
        async with ctx.transaction():
            pass

    await append(app, "a", 2)
    async with running(app.node(timing=QUICK)):
        await eventually(drained(app))
    assert handled == [1, 2]


async def _parked_and_lost(app, losses: int) -> None:
    """Leave an event parked and to be retried, and its share as one whose nodes have died so often since."""
    async with running(app.node(timing=QUICK)):
        await eventually(drained(app))
    assert await app.consumers.retry_parked("billing") == 1
    await query(app, f"update holdfast_allocation set losses = {losses}")  # noqa: S608 - a number


async def test_a_parked_event_that_may_have_killed_nodes_is_retried_on_trial(app):
    trials: list[object] = []

    @app.consumer("billing", category="orders", poll_interval=0.05, max_attempts=1, on_error="park")
    async def billing(event: Event, ctx: EventContext) -> None:
        if not trials and not is_retried:
            raise ValueError("no")
        trials.extend(await query(app, "select losses, on_trial from holdfast_allocation"))

    is_retried = False
    await app.category("orders", partitions=1)
    await append(app, "a", 1)
    await _parked_and_lost(app, 3)
    is_retried = True
    async with running(app.node(timing=QUICK)):

        async def flows():
            return not await app.consumers.parked("billing")

        await eventually(flows)
    assert trials == [(3, 1)]
    assert await query(app, "select losses, on_trial from holdfast_allocation") == [(0, 0)]


async def test_a_parked_event_that_has_killed_its_nodes_stays_parked_and_others_flow(app):
    handled: list[str] = []

    @app.consumer("billing", category="orders", poll_interval=0.05, max_attempts=1, on_error="park")
    async def billing(event: Event) -> None:
        handled.append(event.stream)
        if event.stream == "a":
            raise ValueError("no")

    await app.category("orders", partitions=1)
    await append(app, "a", 1)
    await _parked_and_lost(app, 6)
    handled.clear()
    await append(app, "b", 1)
    async with running(app.node(timing=QUICK)):
        await eventually(drained(app))
    (parked,) = await app.consumers.parked("billing")
    assert (parked.failure.error_class, parked.is_retrying) == ("NodeLost", False)
    assert handled == ["b"]
