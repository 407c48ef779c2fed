"""The port's verbs for events, on a SQL store."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta

from holdfast.backends.sql.category_cache import Categories
from holdfast.backends.sql.streams import categories, reading, trimming
from holdfast.model.event import StoredEvent
from holdfast.store.steps import Runner
from holdfast.store.stream_values import CategoryView


def no_notification() -> None:
    """Do nothing: events in a caller's transaction become visible at a commit that only the caller knows of."""


class SqlEvents:
    """`EventStore` on a SQL store, except `append`."""

    def __init__(self, runner: Runner) -> None:
        self._runner = runner

    async def open_category(self, name: str, partitions: int | None = None) -> CategoryView:  # noqa: D102 - see the port
        return await self._runner.write(lambda: categories.open_category(name, partitions))

    async def categories(self) -> list[CategoryView]:  # noqa: D102
        return await self._runner.look(categories.categories)

    async def read(self, category: str, partition_id: int, *, after: int, limit: int) -> list[StoredEvent]:  # noqa: D102
        return await self._runner.look(lambda: reading.read(category, partition_id, after=after, limit=limit))

    async def read_stream(  # noqa: D102
        self, category: str, stream: str, *, after: int | None = None, limit: int, backwards: bool = False
    ) -> list[StoredEvent]:
        return await self._runner.look(
            lambda: reading.read_stream(category, stream, after=after, limit=limit, backwards=backwards)
        )

    async def stream_version(self, category: str, stream: str) -> int:  # noqa: D102
        return await self._runner.look(lambda: reading.stream_version(category, stream))

    async def position_at(self, category: str, partition_id: int, at: datetime) -> int:  # noqa: D102
        return await self._runner.look(lambda: reading.position_at(category, partition_id, at))

    async def trim(  # noqa: D102
        self, category: str, *, older_than: timedelta, limit: int, past_unread: bool = False
    ) -> int:
        return await self._runner.write(
            lambda: trimming.trim(category, older_than=older_than, limit=limit, past_unread=past_unread)
        )


class ServerEvents(SqlEvents):
    """The same on a server. `appended` is to be called after each append, inside a joined transaction or not."""

    def __init__(
        self, runner: Runner, *, categories: Categories, appended: Callable[[], None] = no_notification
    ) -> None:
        super().__init__(runner)
        self._categories = categories
        self._appended = appended
