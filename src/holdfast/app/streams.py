"""The part of an app that is about streams: append, read, consume."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import timedelta
from typing import Any, Never, TypeVar, cast
from uuid import UUID

from holdfast.app.admin import check_limit
from holdfast.app.consumers import ConsumerDesk
from holdfast.app.retry_unknown import until_known
from holdfast.app.sync import Portal
from holdfast.app.unknown_settings import refuse_unknown
from holdfast.errors import CategoryNotFound, ConfigError
from holdfast.model.allocation import Timing
from holdfast.model.duration import to_span
from holdfast.model.event import MAX_PARTITIONS, Appended
from holdfast.model.names import check_name
from holdfast.store.backend import Backend
from holdfast.store.stream_values import CategoryView, LeaderView, NodeView, Start, StartAt
from holdfast.streams.append import new_events
from holdfast.streams.consumer import CONSUMER_SETTINGS, Consumers, OnError, check_stream, make_consumer
from holdfast.streams.node import Node
from holdfast.streams.reading import After, EventPage, read_categories, read_stream

H = TypeVar("H", bound=Callable[..., Any])


class StreamApp:
    """What `App` can do with streams."""

    backend: Backend
    portal: Portal

    def __init__(self) -> None:
        self.subscribed = Consumers()
        """The consumers that `@app.consumer` has registered."""
        self.consumers = ConsumerDesk(self)

    async def opened(self) -> Backend:
        """Return the backend, opened in this process."""
        raise NotImplementedError

    # --- events -------------------------------------------------------------------------------------------------------

    async def category(self, name: str, *, partitions: int | None = None) -> CategoryView:
        """Make a category, or return the one there is; the number of its partitions is fixed for ever.

        The first append to a category makes it with the default number. Events of one partition are handled one after
        another, so the number of partitions limits how many nodes can share a consumer's work.
        """
        if partitions is not None and not 1 <= partitions <= MAX_PARTITIONS:
            raise ConfigError(f"partitions={partitions}: pass a number from 1 to {MAX_PARTITIONS}")
        return await (await self.opened()).streams.events.open_category(check_name("category", name), partitions)

    async def categories(self) -> Sequence[CategoryView]:
        """List all categories."""
        return await (await self.opened()).streams.events.categories()

    async def append(
        self,
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
        """Append an event to a stream and return its place.

        `payload` is kept as JSON: dates, UUIDs and decimals become texts, which `event.decode(…)` reads back.
        `expected_version` is the version that the stream must have (0: no event yet); `VersionConflict` tells the
        actual one. `event_id` (a UUID) makes an append safe to repeat. `using` joins the caller's own transaction.
        """
        event = {"stream": stream, "name": name, "payload": payload, "headers": headers}
        event |= {"expected_version": expected_version, "event_id": event_id}
        (appended,) = await self.append_many(category, [event], using=using)
        return appended

    async def append_many(
        self, category: str, events: Iterable[Mapping[str, Any]], *, using: object = None
    ) -> Sequence[Appended]:
        """Append events, all or none: mappings with `stream`, `name`, `payload` and what else `append` takes."""
        made = new_events(category, events)
        if not made:
            return []
        backend = await self.opened()
        if using is not None:
            return await backend.streams.join(using).append(made)
        if backend.capabilities.joins_transactions and backend.transactions.is_inside():
            return await backend.streams.events.append(made)
        return await until_known(backend, lambda: backend.streams.events.append(made))

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
        """Return a page of events of a stream, of a category or one of its partitions, or (`log=True`) of all.

        `after` is the cursor of the page before, a version (of a stream), a position (of a partition), or a time. A
        stream can be read backwards: then it begins at its last event, and `after` is the version to stay below.
        """
        check_limit(limit)
        events = (await self.opened()).streams.events
        if stream is not None:
            where = check_name("category", category)
            return await read_stream(events, where, check_stream(stream), after=after, limit=limit, backwards=backwards)
        if backwards:
            raise ConfigError("only a stream is read backwards: pass stream=…")
        if log is (category is not None):
            raise ConfigError("pass a category (with stream=… for one stream of it), or log=True for all")
        views = await events.categories()
        chosen = [view for view in views if log or view.name == category]
        if category is not None and not chosen:
            raise CategoryNotFound(f"there is no category {category!r}: the first append, or app.category(…), makes it")
        return await read_categories(events, chosen, after=after, limit=limit, partition_id=partition_id)

    async def trim(
        self, category: str, older_than: float | timedelta, *, limit: int = 10_000, past_unread: bool = False
    ) -> int:
        """Delete old events that every consumer has passed, at most `limit`; how many. Call it again until 0."""
        events = (await self.opened()).streams.events
        span = to_span(older_than, "older_than")
        name = check_name("category", category)
        return await events.trim(name, older_than=span, limit=check_limit(limit), past_unread=past_unread)

    # --- consumers ----------------------------------------------------------------------------------------------------

    def consumer(  # noqa: PLR0913 - each is a setting of its own, by name
        self,
        name: str,
        *,
        category: str | None = None,
        stream: str | None = None,
        log: bool = False,
        start: Start | str = StartAt.BEGINNING,
        batch: int | None = None,
        commit_every: int = 100,
        commit_interval: float | timedelta = 1.0,
        poll_interval: float | timedelta = 1.0,
        on_error: OnError | str = OnError.BLOCK,
        max_attempts: int = 5,
        retry: object = None,
        timeout: float | timedelta | None = None,
        capacity: int = 1,
        **unknown: Never,
    ) -> Callable[[H], H]:
        """Register a function, or a class with a method `handle`, as a consumer.

        It reads `category=…`, one `stream=…` of it, or with `log=True` all categories, from `start="beginning"`, "end",
        a time or a position. The handler takes an event, or a list of them if it is so annotated (at most `batch`, 100
        by default), and a context if it wants one. `on_error` is "block", "skip" or "park", after `max_attempts`,
        spaced by `retry`. Without `ctx.transaction()` the position is written every `commit_every` events or
        `commit_interval` seconds. `poll_interval` is how often it looks when nothing hints, `capacity` the weight of
        this node. Raises `ConfigError` for what cannot work.
        """
        if callable(cast("object", name)):
            own = getattr(name, "__name__", "name")
            remedy = f'pass a name and what it reads, as in @app.consumer("{own}", category=…)'
            raise ConfigError(f"@app.consumer without parentheses knows nothing of its consumer: {remedy}")
        refuse_unknown(f"consumer {name!r}", unknown, CONSUMER_SETTINGS)

        def register(handler: H) -> H:
            try:
                consumer = make_consumer(
                    name,
                    handler,
                    category=category,
                    stream=stream,
                    log=log,
                    start=start,
                    batch=batch,
                    commit_every=commit_every,
                    commit_interval=commit_interval,
                    poll_interval=poll_interval,
                    on_error=on_error,
                    max_attempts=max_attempts,
                    retry=retry,
                    timeout=timeout,
                    capacity=capacity,
                )
            except TypeError as error:  # of a class that cannot be made without arguments, say
                raise ConfigError(f"consumer {name!r}: {error}") from error
            self.subscribed.add(consumer)
            return handler

        return register

    def node(
        self, *, node_id: str | None = None, timing: Timing | None = None, stuck_grace: float | timedelta = 10.0
    ) -> Node:
        """Return a node over this app's consumers; `await node.run()` takes part until `node.stop()`.

        A worker that runs an app with consumers is one by itself. With a fixed `node_id` a process that comes back
        soon gets its partitions back.
        """
        if timing is not None and not isinstance(cast("object", timing), Timing):
            raise ConfigError(f"timing={timing!r} is no timing: pass Timing(…), or Timing.for_recovery(<seconds>)")
        grace = to_span(stuck_grace, "stuck_grace").total_seconds()
        return Node(self.backend, list(self.subscribed), node_id=node_id, timing=timing, stuck_grace=grace)

    async def nodes(self) -> Sequence[NodeView]:
        """List the nodes that have reported."""
        return await (await self.opened()).streams.allocations.nodes()

    async def leader(self) -> LeaderView | None:
        """Return the node that allots partitions, None if nobody does: there never was one, or it has left."""
        return await (await self.opened()).streams.allocations.leader()
