"""Events: append and read; categories, consumers and nodes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from holdfast.reports.states import node_state
from holdfast.server.api.event_schemas import (
    AppendedEvent,
    AppendedEvents,
    AppendRequest,
    CategoryList,
    ConsumerList,
    ConsumerShare,
    EventList,
    EventQuery,
    NewEventRequest,
    NodeList,
    ShownCategory,
    ShownConsumer,
    ShownEvent,
    ShownNode,
    StreamQuery,
)
from holdfast.server.api.fields import NoFields
from holdfast.server.api.operation import Answer, ApiCall, Need, Operation, trace_of
from holdfast.server.api.queue_schemas import Changed
from holdfast.server.api.shown import shown
from holdfast.server.redaction import redacted_data
from holdfast.store.stream_values import ConsumerView
from holdfast.streams.reading import EventPage

# --- events -----------------------------------------------------------------------------------------------------------


async def append_events(call: ApiCall[NoFields, AppendRequest]) -> Answer:
    """Append events to a stream, all or none.

    The first append creates the category. Answers 409 `version-conflict`, with the actual version, if the stream is not
    at `expected_version`.
    """
    stream, body = call.path("stream"), call.body
    trace = trace_of(call.request)
    events = [_new_event(stream, event, trace) for event in body.events]
    events[0]["expected_version"] = body.expected_version
    places = await call.app.append_many(call.path("category"), events)
    return Answer(AppendedEvents([shown(AppendedEvent, place) for place in places]), 201)


def _new_event(stream: str, event: NewEventRequest, trace: Mapping[str, str]) -> dict[str, Any]:
    return {
        "stream": stream,
        "name": event.name,
        "payload": msgspec.json.decode(event.payload),
        "headers": {**trace, **(event.headers or {})} or None,
        "event_id": event.id,
    }


async def read_stream_events(call: ApiCall[StreamQuery, NoFields]) -> Answer:
    """Read the events of a stream, a page at a time.

    To see payloads and headers, besides `read` the scope `enqueue` or `operate` is needed.
    """
    query = call.query
    page = await call.app.read(
        call.path("category"),
        stream=call.path("stream"),
        after=query.after,
        backwards=query.backwards,
        limit=query.limit,
    )
    return _page(call, page)


async def read_category_events(call: ApiCall[EventQuery, NoFields]) -> Answer:
    """Read the events of all streams of a category, a page at a time.

    To see payloads and headers, besides `read` the scope `enqueue` or `operate` is needed.
    """
    page = await call.app.read(call.path("category"), after=call.query.after, limit=call.query.limit)
    return _page(call, page)


async def read_log(call: ApiCall[EventQuery, NoFields]) -> Answer:
    """Read the events of all categories, a page at a time.

    To see payloads and headers, besides `read` the scope `enqueue` or `operate` is needed.
    """
    return _page(call, await call.app.read(log=True, after=call.query.after, limit=call.query.limit))


def _page(call: ApiCall[Any, Any], page: EventPage) -> Answer:
    """Return events; with their contents, redacted, if the caller may see results of jobs, too."""
    settings = call.state.settings
    if call.sees_contents:
        events = [
            shown(
                ShownEvent,
                event,
                payload=redacted_data(settings, event.name, event.payload_or_text),
                headers=redacted_data(settings, event.name, event.headers),
            )
            for event in page.events
        ]
    else:
        events = [shown(ShownEvent, event, payload=None, headers={}) for event in page.events]
    return Answer(EventList(events, page.cursor, is_hidden=not call.sees_contents))


async def list_categories(call: ApiCall[NoFields, NoFields]) -> Answer:
    """List all categories."""
    views = await call.app.categories()
    return Answer(
        CategoryList([shown(ShownCategory, view, heads=[*view.heads], trimmed=[*view.trimmed]) for view in views])
    )


# --- consumers and nodes ----------------------------------------------------------------------------------------------


async def list_consumers(call: ApiCall[NoFields, NoFields]) -> Answer:
    """List all consumers, with the position, lag and owner of each partition."""
    return Answer(ConsumerList([_consumer(view) for view in await call.app.consumers.list()]))


async def show_consumer(call: ApiCall[NoFields, NoFields]) -> Answer:
    """Return one consumer."""
    return Answer(_consumer(await call.app.consumers.show(call.path("consumer"))))


def _consumer(view: ConsumerView) -> ShownConsumer:
    shares = [
        shown(ConsumerShare, share, category=share.share.category, partition_id=share.share.partition_id)
        for share in view.shares
    ]
    subscription = view.subscription
    return shown(ShownConsumer, view, category=subscription.category, stream=subscription.stream, shares=shares)


async def pause_consumer(call: ApiCall[NoFields, NoFields]) -> Answer:
    """Stop consumption once the events in flight are handled."""
    name = call.path("consumer")
    return Answer(Changed(name, await call.app.consumers.pause(name)))


async def resume_consumer(call: ApiCall[NoFields, NoFields]) -> Answer:
    """Resume consumption."""
    name = call.path("consumer")
    return Answer(Changed(name, await call.app.consumers.resume(name)))


async def list_nodes(call: ApiCall[NoFields, NoFields]) -> Answer:
    """List the nodes that have sent a heartbeat, and the leader."""
    leader = await call.app.leader()
    nodes = [
        shown(
            ShownNode,
            view,
            node_id=view.node.node_id,
            state=node_state(view),
            consumers=[member.consumer for member in view.members],
        )
        for view in await call.app.nodes()
    ]
    return Answer(NodeList(nodes, None if leader is None else leader.leadership.node.node_id))


_STREAM: Final = "/v1/categories/{category}/streams/{stream:path}/events"
_CONSUMER: Final = "/v1/consumers/{consumer}"
OPERATIONS: Final = (
    Operation(
        "POST",
        _STREAM,
        append_events,
        Need.ENQUEUE,
        {201: AppendedEvents},
        body=AppendRequest,
        problems=(409,),
        links={
            "read_stream_events": {"parameters": {name: f"$request.path.{name}" for name in ("category", "stream")}},
            "read_category_events": {"parameters": {"category": "$request.path.category"}},
        },
    ),
    Operation("GET", _STREAM, read_stream_events, Need.READ, {200: EventList}, query=StreamQuery),
    Operation(
        "GET",
        "/v1/categories/{category}/events",
        read_category_events,
        Need.READ,
        {200: EventList},
        query=EventQuery,
    ),
    Operation("GET", "/v1/events", read_log, Need.READ, {200: EventList}, query=EventQuery),
    Operation("GET", "/v1/categories", list_categories, Need.READ, {200: CategoryList}),
    Operation("GET", "/v1/consumers", list_consumers, Need.READ, {200: ConsumerList}),
    Operation("GET", _CONSUMER, show_consumer, Need.READ, {200: ShownConsumer}),
    Operation("POST", f"{_CONSUMER}/pause", pause_consumer, Need.OPERATE, {200: Changed}),
    Operation("POST", f"{_CONSUMER}/resume", resume_consumer, Need.OPERATE, {200: Changed}),
    Operation("GET", "/v1/nodes", list_nodes, Need.READ, {200: NodeList}),
)
