"""The consumers under torture: every way to write an effect, and one without effects.

The effect table has no unique constraint, so that a duplicate effect is visible as two rows.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final

from holdfast.streams.context import EventContext
from holdfast.streams.event import Event
from holdfast.torture.history import now_us
from holdfast.torture.recorder import recorder
from holdfast.torture.streams.app import app
from holdfast.torture.streams.names import (
    BATCH,
    LOG,
    MAIN,
    PARK,
    PLAIN,
    POISON,
    POISONED,
    SINGLE,
    SINGLES,
    SLOW,
    STUMBLES,
    THREAD,
    THREADS,
)
from holdfast.torture.streams.records import Handled
from holdfast.torture.work.app import target

_BATCH: Final = 50
_AGAIN: Final = 0.05  # seconds
_SLOWLY: Final = 0.3
_MOMENT: Final = 0.003


class Stumbled(Exception):  # noqa: N818 - reads as what happened
    """The handler fails, once."""


class Poisoned(Exception):  # noqa: N818
    """The handler fails, each time."""


class NodeProcess:
    """This process, as named in effects."""

    name = ""


def _insert(rows: int) -> str:
    """Return the statement that inserts a number of effects."""
    statements = target().statements
    return statements["insert_stream_effect"] + ", ".join([statements["stream_effect_values"]] * rows)


def _values(events: Sequence[Event], ctx: EventContext) -> tuple[object, ...]:
    return tuple(
        value
        for event in events
        for value in (
            ctx.consumer,
            event.category,
            event.partition_id,
            event.position,
            event.id,
            ctx.fence,
            NodeProcess.name,
        )
    )


async def _pass_through(event: Event, ctx: EventContext) -> None:
    """Before the transaction, do what an event demands: be slow, or fail once."""
    if event.name == SLOW:
        await asyncio.sleep(_SLOWLY)  # the work
    if event.name == STUMBLES and ctx.attempt == 1:
        raise Stumbled


async def _take_effect(events: Sequence[Event], ctx: EventContext) -> None:
    async with ctx.transaction() as connection:
        await connection.execute(_insert(len(events)), _values(events, ctx))


@app.consumer(SINGLE, category=SINGLES, batch=_BATCH, retry=_AGAIN)
async def single(event: Event, ctx: EventContext) -> None:
    """Write effects event by event, in a pipeline if supported: the session of a stopped process stays in it."""
    await _pass_through(event, ctx)
    if not target().has_pipelines:
        await _take_effect([event], ctx)
        return
    async with ctx.transaction() as connection, connection.pipeline():
        await connection.execute(_insert(1), _values([event], ctx))
        await asyncio.sleep(_MOMENT)  # the work


@app.consumer(BATCH, category=MAIN, batch=_BATCH, retry=_AGAIN)
async def batch(events: list[Event], ctx: EventContext) -> None:
    """Write effects batch by batch, by COPY if supported."""
    for event in events:
        await _pass_through(event, ctx)
    if not target().has_pipelines:
        await _take_effect(events, ctx)
        return
    async with (
        ctx.transaction() as connection,
        connection.cursor() as cursor,
        cursor.copy(target().statements["copy_stream_effect"]) as copy,
    ):
        for event in events:
            await copy.write_row(_values([event], ctx))
        await asyncio.sleep(_MOMENT)  # the work


@app.consumer(LOG, log=True, batch=2 * _BATCH, retry=_AGAIN)
async def log(events: list[Event], ctx: EventContext) -> None:
    """Write effects batch by batch, for the events of all categories."""
    await _take_effect(events, ctx)


@app.consumer(THREAD, category=THREADS, batch=_BATCH, retry=_AGAIN)
def thread(event: Event, ctx: EventContext) -> None:
    """Write effects in a thread."""
    if event.name == STUMBLES and ctx.attempt == 1:
        raise Stumbled
    with ctx.sync.transaction() as connection:
        connection.execute(_insert(1), _values([event], ctx))


@app.consumer(PLAIN, category=MAIN, batch=_BATCH, commit_every=_BATCH, commit_interval=0.5, retry=_AGAIN)
async def plain(event: Event, ctx: EventContext) -> None:
    """Write no effect in the store: the history records that the event was handled, at least once."""
    if event.name == STUMBLES and ctx.attempt == 1:
        raise Stumbled
    recorder.write(
        Handled(
            at_us=now_us(),
            consumer=ctx.consumer,
            category=event.category,
            partition=event.partition_id,
            generation=ctx.fence,
            position=event.position,
            event=event.id,
            node=NodeProcess.name,
        )
    )


@app.consumer(PARK, category=POISONED, batch=_BATCH, on_error="park", max_attempts=4, retry=_AGAIN)
async def park(event: Event, ctx: EventContext) -> None:
    """Fail permanently at times; a failing event, and the later ones of its stream, are parked."""
    if event.name == POISON:
        raise Poisoned
    await _pass_through(event, ctx)
    await _take_effect([event], ctx)
