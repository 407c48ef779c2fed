"""Streams on SQLite: the shared verbs, with an append for SQLite."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from holdfast.backends.sql.streams.event_store import SqlEvents
from holdfast.backends.sqlite.verbs.append import append
from holdfast.model.event import Appended, NewEvent
from holdfast.store.steps import Runner


class SqliteEvents(SqlEvents):
    """`EventStore` on SQLite."""

    def __init__(self, runner: Runner, notify: Callable[[], None]) -> None:
        super().__init__(runner)
        self._notify = notify

    async def append(self, events: Sequence[NewEvent]) -> list[Appended]:  # noqa: D102 - the port states the contracts
        appended = await self._runner.write(lambda: append(events))
        self._notify()
        return appended
