"""The events of an app: append, read and trim them; the nodes that consume them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any
from uuid import UUID

from holdfast.app.admin import check_limit
from holdfast.app.retry_unknown import repeat_unknown
from holdfast.errors import CategoryNotFound, ConfigError, OutcomeUnknown
from holdfast.hooks.sending import send_events
from holdfast.model.duration import to_span
from holdfast.model.event import MAX_PARTITIONS, Appended, NewEvent
from holdfast.model.names import check_name
from holdfast.runtime.unawaited import MethodCall, reports_unawaited
from holdfast.store.stream_values import CategoryView, LeaderView, NodeView
from holdfast.streams.append import new_events
from holdfast.streams.consumer import check_stream
from holdfast.streams.reading import After, EventPage, read_categories, read_stream

if TYPE_CHECKING:
    from holdfast.app.app import App


class AppEvents:
    """The part of an app that reads and writes events; `App` offers its methods as its own."""

    def __init__(self, app: App) -> None:
        self._app = app

    # --- events -------------------------------------------------------------------------------------------------------

    async def category(self, name: str, *, partitions: int | None = None) -> CategoryView:
        """Create a category, or return the existing one; the number of partitions never changes.

        The first append to a category creates it with the default number. The events of one partition are handled one
        after another, so the number of partitions limits how many nodes can share a consumer's work.
        """
        if partitions is not None and not 1 <= partitions <= MAX_PARTITIONS:
            raise ConfigError(f"partitions={partitions}: pass a number from 1 to {MAX_PARTITIONS}")
        return await (await self._app.opened()).streams.events.open_category(check_name("category", name), partitions)

    async def categories(self) -> Sequence[CategoryView]:
        """List all categories."""
        return await (await self._app.opened(install=False)).streams.events.categories()

    @reports_unawaited("nothing was appended")
    async def append(  # noqa: PLR0913 - the caller does not pass `call`
        self,
        call: MethodCall,
        /,
        category: str,
        *,
        stream: str,
        name: str,
        payload: Any = None,
        headers: Mapping[str, str] | None = None,
        expected_version: int | None = None,
        event_id: str | UUID | None = None,
        using: object = None,
    ) -> Appended:
        """Append an event to a stream and return its version and position.

        `payload` is stored as JSON: dates, UUIDs and decimals become texts, which `event.decode(…)` converts back.
        `expected_version` is the version that the stream must have (0: no event yet); `VersionConflict` carries the
        actual one. `event_id` (a UUID) makes an append safe to repeat. `using` joins the caller's open transaction.
        """
        call.is_started = True
        event = {"stream": stream, "name": name, "payload": payload, "headers": headers}
        event |= {"expected_version": expected_version, "event_id": event_id}
        (appended,) = await self.append_many(category, [event], using=using)
        return appended

    @reports_unawaited("nothing was appended")
    async def append_many(
        self, call: MethodCall, /, category: str, events: Iterable[Mapping[str, Any]], *, using: object = None
    ) -> Sequence[Appended]:
        """Append events, all or none: mappings with `stream`, `name`, `payload` and the other arguments of `append`."""
        call.is_started = True
        made = new_events(category, events)
        if not made:
            return []
        around = self._app.hooks.sending
        if around:
            return await send_events(around, made, lambda events: self._append(events, using))
        return await self._append(made, using)

    async def _append(self, made: Sequence[NewEvent], using: object) -> Sequence[Appended]:
        backend = await self._app.opened()
        if using is not None:
            return await backend.streams.join(using).append(made)
        joins = backend.capabilities.joins_transactions and backend.transactions.is_inside()
        try:
            return await backend.streams.events.append(made)
        except OutcomeUnknown as unknown:
            if joins:  # it is the enclosing transaction that decides, and a repeat would be outside it
                raise
            return await repeat_unknown(backend, unknown, lambda: backend.streams.events.append(made))

    async def read(
        self,
        category: str | None = None,
        *,
        stream: str | None = None,
        log: bool = False,
        partition_id: int | None = None,
        after: After = None,
        backwards: bool = False,
        limit: int = 100,
    ) -> EventPage:
        """Return a page of events: of a stream, of a category or one partition of it, or (`log=True`) of all.

        `after` is the cursor of the previous page, a version (of a stream), a position (of a partition), or a time. A
        stream can be read backwards: the page then begins at its last event, and `after` is an exclusive upper bound.
        """
        check_limit(limit)
        # A program reads a stream to decide what to append to it: its first call may find no tables yet.
        events = (await self._app.opened(install=stream is not None)).streams.events
        if stream is not None:
            where = check_name("category", category)
            return await read_stream(events, where, check_stream(stream), after=after, limit=limit, backwards=backwards)
        if backwards:
            raise ConfigError("only a stream can be read backwards: pass stream=…")
        if log is (category is not None):
            raise ConfigError("pass a category (with stream=… for one stream of it), or log=True for all")
        views = await events.categories()
        chosen = [view for view in views if log or view.name == category]
        if category is not None and not chosen:
            raise CategoryNotFound(f"there is no category {category!r}: an append or app.category(…) creates it")
        return await read_categories(events, chosen, after=after, limit=limit, partition_id=partition_id)

    async def trim(
        self, category: str, older_than: float | timedelta, *, limit: int = 10_000, past_unread: bool = False
    ) -> int:
        """Delete at most `limit` old events that every consumer has passed; return the number. Repeat until 0."""
        events = (await self._app.opened(install=False)).streams.events
        span = to_span(older_than, "older_than")
        name = check_name("category", category)
        return await events.trim(name, older_than=span, limit=check_limit(limit), past_unread=past_unread)

    # --- nodes --------------------------------------------------------------------------------------------------------

    async def nodes(self) -> Sequence[NodeView]:
        """List the nodes that have sent a heartbeat."""
        return await (await self._app.opened(install=False)).streams.allocations.nodes()

    async def leader(self) -> LeaderView | None:
        """Return the node that assigns partitions; None if there never was one, or it has left."""
        return await (await self._app.opened(install=False)).streams.allocations.leader()
