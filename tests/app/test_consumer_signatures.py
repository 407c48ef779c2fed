"""What the handler of a consumer says that it takes is what it is given; else it is refused where it is declared."""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, List, Optional, Protocol, TypeVar, Union  # noqa: UP035

import pytest
from tests.app.stream_work import QUICK, append, drained, eventually, running

from holdfast import App, ConfigError, Context, Event, EventContext

if TYPE_CHECKING:
    from somewhere import Unseen  # type: ignore[import-not-found]

T = TypeVar("T")


@dataclass
class Renamed:
    name: str


class Named(Protocol):
    name: str


def swapped(ctx: EventContext, event: Event) -> None: ...
def swapped_without_words(ctx: EventContext, event) -> None: ...
def with_the_context_of_a_job(event, ctx: Context) -> None: ...
def with_a_second_event(event: Event, other: Event) -> None: ...
def with_a_payload(event: Renamed) -> None: ...
def with_a_dict(event: dict[str, Any]) -> None: ...
def with_payloads(events: list[Renamed]) -> None: ...
def with_a_set(events: set[Event]) -> None: ...
def with_contexts(events: list[EventContext]) -> None: ...
def with_a_job(ctx: Context) -> None: ...


@pytest.mark.parametrize(
    ("handler", "says"),
    [
        (
            swapped,
            r"the event comes first and the context second.* declare the parameters as \(event: Event, ctx: Event",
        ),
        (swapped_without_words, "the event comes first and the context second"),
        (with_the_context_of_a_job, r"second parameter, ctx, .*Context, but .* annotate it as EventContext"),
        (with_a_second_event, "second parameter, other, .* annotate it as EventContext"),
        (with_a_payload, r"first parameter, event, .*Renamed.* annotate it as Event or list\[Event\].* event\.decode"),
        (with_a_dict, r"annotate it as Event or list\[Event\]"),
        (with_payloads, r"annotate it as Event or list\[Event\]"),
        (with_a_set, r"annotate it as Event or list\[Event\]"),
        (with_contexts, r"annotate it as Event or list\[Event\]"),
        (with_a_job, r"annotate it as Event or list\[Event\]"),
    ],
)
def test_an_annotation_that_says_something_else_than_its_place_is_refused_with_the_remedy(handler, says):
    app = App("sqlite://")
    with pytest.raises(ConfigError, match=says):
        app.consumer("billing", category="orders")(handler)
    assert not len(app.subscribed)


def one(event: Event, ctx: EventContext) -> None: ...
def bare(event, ctx) -> None: ...
def anything(event: Any, ctx: object) -> None: ...
def perhaps(event: Event | None, ctx: Optional[EventContext]) -> None: ...  # noqa: UP045
def annotated(event: Annotated[Event, "an order"], ctx: Annotated[EventContext, "of it"]) -> None: ...
def by_protocol(event: Named, ctx: Any) -> None: ...
def by_variable(event: T, ctx: EventContext) -> list[T] | None: ...
def unseen(event: Unseen, ctx: EventContext) -> None: ...
def several(events: list[Event], ctx: EventContext) -> None: ...
def several_bare(events: list, ctx: EventContext) -> None: ...  # type: ignore[type-arg]
def several_old(events: List[Event], ctx: EventContext) -> None: ...  # noqa: UP006
def several_tuple(events: tuple[Event, ...], ctx: EventContext) -> None: ...
def several_sequence(events: Sequence[Event], ctx: EventContext) -> None: ...
def several_iterable(events: Iterable[Event], ctx: EventContext) -> None: ...
def several_collection(events: Collection[Event], ctx: EventContext) -> None: ...
def several_perhaps(events: Union[list[Event], None], ctx: EventContext) -> None: ...  # noqa: UP007
def several_unseen(events: list[Unseen], ctx: EventContext) -> None: ...
def with_a_default(event: Event, ctx: EventContext | None = None) -> None: ...


SINGLES: list[Callable[..., Any]] = [
    one,
    bare,
    anything,
    perhaps,
    annotated,
    by_protocol,
    by_variable,
    unseen,
    with_a_default,
]
SEVERAL: list[Callable[..., Any]] = [
    several,
    several_bare,
    several_old,
    several_tuple,
    several_sequence,
    several_iterable,
    several_collection,
    several_perhaps,
    several_unseen,
]


@pytest.mark.parametrize("handler", SINGLES + SEVERAL)
def test_an_annotation_that_fits_is_taken_at_its_word(handler):
    app = App("sqlite://")
    app.consumer("billing", category="orders")(handler)
    (consumer,) = app.subscribed
    assert consumer.takes_batch is (handler in SEVERAL)
    assert consumer.takes_context


def test_a_second_parameter_with_a_default_that_is_no_context_is_left_alone():
    def billing(event: Event, rate: float = 0.2) -> None: ...

    app = App("sqlite://")
    app.consumer("billing", category="orders")(billing)
    (consumer,) = app.subscribed
    assert not consumer.takes_context


@pytest.mark.parametrize("handler", [bare, anything])
def test_a_batch_for_a_handler_that_does_not_say_that_it_takes_a_list_is_refused(handler):
    app = App("sqlite://")
    with pytest.raises(ConfigError, match=r"batch=10.*annotate its first parameter as list\[Event\]"):
        app.consumer("billing", category="orders", batch=10)(handler)
    app.consumer("billing", category="orders", batch=1)(handler)


@pytest.mark.parametrize("handler", [bare, one, several])
def test_without_a_word_a_batch_has_at_most_a_hundred_events(handler):
    app = App("sqlite://")
    app.consumer("billing", category="orders")(handler)
    (consumer,) = app.subscribed
    assert consumer.batch == 100


async def test_a_context_with_a_default_is_filled_in(file_app: App):
    attempts: list[int] = []

    @file_app.consumer("billing", category="orders", poll_interval=0.05)
    async def billing(event: Event, ctx: EventContext | None = None) -> None:
        attempts.append(0 if ctx is None else ctx.attempt)

    await append(file_app, "a", 1)
    async with running(file_app.node(timing=QUICK)):
        await eventually(drained(file_app))
    assert attempts == [1]


async def test_a_context_that_declares_its_connection_is_filled_in(file_app: App):
    attempts: list[int] = []

    @file_app.consumer("billing", category="orders", poll_interval=0.05)
    async def billing(event: Event, ctx: EventContext[sqlite3.Connection]) -> None:
        attempts.append(ctx.attempt)

    await append(file_app, "a", 1)
    async with running(file_app.node(timing=QUICK)):
        await eventually(drained(file_app))
    assert attempts == [1]


async def test_a_value_that_a_consumer_returns_is_not_stored_and_the_log_says_so_once(file_app: App, caplog):
    @file_app.consumer("returns", category="orders", poll_interval=0.05)
    async def returns(event: Event) -> int:
        return 7

    await append(file_app, "a", 2)
    with caplog.at_level(logging.WARNING, "holdfast.streams"):
        async with running(file_app.node(timing=QUICK)):
            await eventually(drained(file_app, "returns"))

    (warning,) = [record.getMessage() for record in caplog.records if "is not stored" in record.getMessage()]
    assert warning.startswith("consumer returns: the int that its handler returned is not stored")
    assert "write it in ctx.transaction()" in warning
