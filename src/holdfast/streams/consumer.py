"""A consumer: the name of a piece of work, what it reads, and how its events are handled."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any, Final, TypedDict, Unpack, cast

import msgspec

from holdfast.errors import ConfigError, ConsumerNotFound
from holdfast.model.duration import to_span
from holdfast.model.names import check_name
from holdfast.model.retry import Exponential, RetryPolicy, policy_of
from holdfast.runtime.executor import Executor, choose_executor, reference_of
from holdfast.runtime.handler_checks import refuse_generator
from holdfast.store.stream_values import Start, StartAt, Subscription
from holdfast.streams.handler_parameters import HandlerParameters, read_handler

DEFAULT_RETRY: Final = Exponential(0.1, 2, cap=30, jitter="equal", floor=0)
_DEFAULT_BATCH: Final = 100
_MAX_BATCH: Final = 10_000


class OnError(StrEnum):
    """What becomes of an event that still fails after `max_attempts`."""

    BLOCK = "block"  # go on trying: nothing behind it in its partition is handled before it
    SKIP = "skip"  # log it and pass over it
    PARK = "park"  # set it aside, and with it the later events of its stream; others flow


class Consumer(msgspec.Struct, frozen=True):
    """What `@app.consumer` has made of a function or a class; all of it checked."""

    name: str
    handler: Callable[..., Any]
    subscription: Subscription
    start: Start
    is_async: bool
    executor: Executor
    reference: tuple[str, str] | None
    """Module and qualified name under which a child process finds the handler."""
    takes_batch: bool
    takes_context: bool
    batch: int
    commit_every: int
    commit_interval: timedelta
    poll_interval: timedelta
    on_error: OnError
    max_attempts: int
    retry: RetryPolicy
    timeout: timedelta | None
    capacity: int

    def __repr__(self) -> str:
        """Show the name and what it reads."""
        return f"<Consumer {self.name!r} of {self.subscription}>"


class ConsumerSettings(TypedDict, total=False):
    """The settings of `@app.consumer(…)`: the only list of them.

    A consumer reads a `category`, one `stream` of it, or with `log=True` all categories, from `start`: "beginning",
    "end", a time or a position. `batch` is the largest list that a handler of lists is given, 100 by default. Without
    `ctx.transaction()` the position is written every `commit_every` events or `commit_interval` seconds.
    `poll_interval` is the interval of polls without a notification. `on_error` is "block", "skip" or "park", applied
    after `max_attempts`, spaced by `retry`. `timeout` limits one attempt. `capacity` is the weight of this node. With
    `executor="process"` the handler runs in a child process.
    """

    category: str | None
    stream: str | None
    log: bool
    start: Start | str
    batch: int | None
    commit_every: int
    commit_interval: float | timedelta
    poll_interval: float | timedelta
    on_error: OnError | str
    max_attempts: int
    retry: object
    timeout: float | timedelta | None
    capacity: int
    executor: str | None


CONSUMER_SETTINGS: Final = tuple(ConsumerSettings.__annotations__)


def make_consumer(name: str, handler: Callable[..., Any], **settings: Unpack[ConsumerSettings]) -> Consumer:
    """Check everything that can be checked before a node runs; raises `ConfigError` with the remedy."""
    check_name("consumer", name)
    call = _call_of(name, handler)
    refuse_generator(call, f"consumer {name!r}")
    takes = read_handler(name, call)
    retry = settings.get("retry")
    executor = choose_executor(call, f"consumer {name!r}", settings.get("executor"))
    if executor is Executor.PROCESS and reference_of(handler) is None:
        message = (
            f"consumer {name!r}: its handler has no name in a module, so a child process cannot import it: move it to "
            'the top of a module, or leave out executor="process"'
        )
        raise ConfigError(message)
    return Consumer(
        name=name,
        handler=call,
        subscription=_subscription(
            name, settings.get("category"), settings.get("stream"), log=settings.get("log", False)
        ),
        start=check_start(settings.get("start", StartAt.BEGINNING)),
        is_async=inspect.iscoroutinefunction(call),
        executor=executor,
        reference=reference_of(handler),
        takes_batch=takes.takes_batch,
        takes_context=takes.takes_context,
        batch=_batch(name, takes, settings.get("batch")),
        commit_every=_count(name, "commit_every", settings.get("commit_every", 100), _MAX_BATCH),
        commit_interval=to_span(settings.get("commit_interval", 1.0), "commit_interval"),
        poll_interval=to_span(settings.get("poll_interval", 1.0), "poll_interval"),
        on_error=_on_error(name, settings.get("on_error", OnError.BLOCK)),
        max_attempts=_count(name, "max_attempts", settings.get("max_attempts", 5), 1_000_000),
        retry=DEFAULT_RETRY if retry is None else policy_of(retry),
        timeout=_timeout(name, executor, settings.get("timeout")),
        capacity=_count(name, "capacity", settings.get("capacity", 1), 1000),
    )


def check_start(start: object) -> Start:
    """Return where to begin; raises `ConfigError` for what is no such place."""
    if isinstance(start, datetime):
        if start.tzinfo is None:
            raise ConfigError(f"start={start!r} has no time zone: pass an aware datetime, e.g. datetime.now(UTC)")
        return start
    if isinstance(start, int) and not isinstance(start, bool) and start >= 0:
        return start
    if isinstance(start, str) and start in set(StartAt):
        return StartAt(start)
    raise ConfigError(f'start={start!r} is none: pass "beginning", "end", an aware datetime or a position from 0')


def _call_of(name: str, handler: object) -> Callable[..., Any]:
    """Return what is called with each event: the function, or the `handle` of an instance of the class."""
    target: object = handler() if isinstance(handler, type) else handler
    if not inspect.isroutine(target):
        target = getattr(target, "handle", None)
    if not callable(target):
        message = f"consumer {name!r}: pass a function, or a class with a method handle(self, event, ctx)"
        raise ConfigError(message)
    return target


def _batch(name: str, takes: HandlerParameters, batch: int | None) -> int:
    """Return how many events are read at once: as many as a batch may have."""
    if batch is None:
        return _DEFAULT_BATCH
    count = _count(name, "batch", batch, _MAX_BATCH)
    if count > 1 and not takes.takes_batch and not takes.says_which:
        message = (
            f"consumer {name!r}: batch={count}, but nothing says that its handler takes a list, so it would be given "
            "one event at a time: annotate its first parameter as list[Event], or as Event and leave out batch"
        )
        raise ConfigError(message)
    return count


def _subscription(name: str, category: str | None, stream: str | None, *, log: bool) -> Subscription:
    if log:
        if category is not None or stream is not None:
            raise ConfigError(f"consumer {name!r}: log=True reads all categories, so it takes no category or stream")
        return Subscription()
    if category is None:
        if stream is not None and "/" in stream:
            category, _, stream = stream.partition("/")
        else:
            message = f"consumer {name!r} reads nothing: pass category=…, category=… with stream=…, or log=True"
            raise ConfigError(message)
    check_name("category", category)
    return Subscription(category, None if stream is None else check_stream(stream))


def check_stream(stream: object) -> str:
    """Return the name of a stream, or refuse it: any text of 1 to 255 characters that a store can keep."""
    if not isinstance(stream, str):
        raise ConfigError(f"stream {stream!r} is not a text: name it after the thing it is about, e.g. 'company-7'")
    if not 1 <= len(stream) <= 255:  # noqa: PLR2004 - fits into an index of every store
        raise ConfigError(f"stream {stream[:40]!r} has {len(stream)} characters: 1 to 255 are allowed")
    if "\0" in stream or not stream.isprintable():
        raise ConfigError(f"stream {stream!r} has characters that cannot be printed: leave them out")
    return stream


def _timeout(name: str, executor: Executor, timeout: float | timedelta | None) -> timedelta | None:
    if timeout is None:
        return None
    if executor is Executor.THREAD:
        message = f"consumer {name!r}: a thread cannot be stopped at a timeout: make the handler async, or leave it out"
        raise ConfigError(message)
    return to_span(timeout, "timeout")


def _on_error(name: str, value: object) -> OnError:
    try:
        return OnError(cast("str", value))
    except ValueError:
        choices = ", ".join(repr(str(choice)) for choice in OnError)
        raise ConfigError(f"consumer {name!r}: on_error={value!r} is none of {choices}") from None


def _count(name: str, what: str, value: object, most: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= most:
        raise ConfigError(f"consumer {name!r}: {what}={value!r}: pass a whole number from 1 to {most}")
    return value


class Consumers:
    """The consumers of an app, by name."""

    def __init__(self) -> None:
        self._by_name: dict[str, Consumer] = {}

    def add(self, consumer: Consumer) -> None:
        """Register a consumer; raises `ConfigError` if there is one of this name."""
        if consumer.name in self._by_name:
            raise ConfigError(f"there is a consumer {consumer.name!r} already: give this one another name")
        self._by_name[consumer.name] = consumer

    def get(self, name: str) -> Consumer:
        """Return a consumer; raises `ConsumerNotFound`."""
        try:
            return self._by_name[name]
        except KeyError:
            known = ", ".join(sorted(self._by_name)) or "none"
            raise ConsumerNotFound(f"this app has no consumer {name!r}; it has {known}") from None

    def __iter__(self) -> Iterator[Consumer]:
        """Iterate over all of them."""
        return iter(self._by_name.values())

    def __len__(self) -> int:
        """Count them."""
        return len(self._by_name)
