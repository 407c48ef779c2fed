"""A consumer: a named, durable reader of events, with its subscription, handler and settings."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Iterator
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any, Final, Literal, TypedDict, Unpack, cast

import msgspec

from holdfast.errors import ConfigError, ConsumerNotFound
from holdfast.model.duration import to_span
from holdfast.model.names import check_name
from holdfast.model.numbers import whole_number
from holdfast.model.retry import Exponential, RetryPolicy, RetrySetting, policy_of
from holdfast.runtime.executor import Executor, ExecutorSetting, choose_executor, reference_of
from holdfast.runtime.handler_checks import refuse_generator
from holdfast.store.stream_values import Start, StartAt, Subscription
from holdfast.streams.handler_parameters import HandlerParameters, read_handler

DEFAULT_RETRY: Final = Exponential(0.1, 2, cap=30)
_DEFAULT_BATCH: Final = 100
_MAX_BATCH: Final = 10_000


class OnError(StrEnum):
    """What happens to an event that still fails after `max_attempts`."""

    BLOCK = "block"  # keep retrying: later events of its partition wait for it
    SKIP = "skip"  # log it and continue with the next event
    PARK = "park"  # set it aside with the later events of its stream; other streams continue


class Consumer(msgspec.Struct, frozen=True):
    """A registered consumer, with checked settings; made by `@app.consumer` from a function or a class."""

    name: str
    handler: Callable[..., Any]
    subscription: Subscription
    start: Start
    is_async: bool
    executor: Executor
    reference: tuple[str, str] | None
    """The module and qualified name under which a child process finds the handler."""
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
    prepare: Callable[[], Awaitable[None]] | None = None
    """Called before a node subscribes it, to check what it needs."""
    ended: Callable[[int, int], None] | None = None
    """Called with partition and generation when this node has ended a share, for whatever reason; does not block."""

    def __repr__(self) -> str:
        """Show the name and the subscription."""
        return f"<Consumer {self.name!r} of {self.subscription}>"


class ConsumerSettings(TypedDict, total=False):
    """The settings of `@app.consumer(…)`: the only list of them.

    A consumer reads a `category`, one `stream` of it, or with `log=True` all categories, from `start`: "beginning",
    "end", a time or a position. `batch` is the maximum number of events in a list for a handler that takes lists, 100
    by default. Without `ctx.transaction()` the position is written every `commit_every` events or `commit_interval`
    seconds. `poll_interval` is the interval of polls without a notification. `on_error` is "block", "skip" or "park",
    applied after `max_attempts`, spaced by `retry`. `timeout` limits one attempt. `capacity` is the weight of this
    node. With `executor="process"` the handler runs in a child process.
    """

    category: str | None
    stream: str | None
    log: bool
    start: Start | Literal["beginning", "end"]
    batch: int | None
    commit_every: int
    commit_interval: float | timedelta
    poll_interval: float | timedelta
    on_error: OnError | Literal["block", "skip", "park"]
    max_attempts: int
    retry: RetrySetting
    timeout: float | timedelta | None
    capacity: int
    executor: ExecutorSetting | None


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
    """Return a valid start; raises `ConfigError` otherwise."""
    if isinstance(start, datetime):
        if start.tzinfo is None:
            raise ConfigError(f"start={start!r} has no time zone: pass an aware datetime, e.g. datetime.now(UTC)")
        return start
    if isinstance(start, int) and not isinstance(start, bool) and start >= 0:
        return start
    if isinstance(start, str) and start in set(StartAt):
        return StartAt(start)
    raise ConfigError(f'invalid start {start!r}: use "beginning", "end", an aware datetime or a position from 0')


def _call_of(name: str, handler: object) -> Callable[..., Any]:
    """Return the callable for events: the function, or the `handle` method of an instance of the class."""
    target: object = handler() if isinstance(handler, type) else handler
    if not inspect.isroutine(target):
        target = getattr(target, "handle", None)
    if not callable(target):
        message = f"consumer {name!r}: pass a function, or a class with a method handle(self, event, ctx)"
        raise ConfigError(message)
    return target


def _batch(name: str, takes: HandlerParameters, batch: int | None) -> int:
    """Return the maximum number of events in a batch."""
    if batch is None:
        return _DEFAULT_BATCH
    count = _count(name, "batch", batch, _MAX_BATCH)
    if count > 1 and not takes.takes_batch and not takes.says_which:
        message = (
            f"consumer {name!r}: batch={count}, but its handler is not annotated to take a list, so it would receive "
            "one event at a time: annotate its first parameter as list[Event], or as Event and omit batch"
        )
        raise ConfigError(message)
    return count


def _subscription(name: str, category: str | None, stream: str | None, *, log: bool) -> Subscription:
    if log:
        if category is not None or stream is not None:
            raise ConfigError(f"consumer {name!r}: log=True reads all categories, so omit category and stream")
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
    """Return a valid stream name: any printable text of 1 to 255 characters; raises `ConfigError` otherwise."""
    if not isinstance(stream, str):
        raise ConfigError(f"stream {stream!r} is not a string: name it after its entity, e.g. 'company-7'")
    if not 1 <= len(stream) <= 255:  # noqa: PLR2004 - fits into an index of each backend
        raise ConfigError(f"stream {stream[:40]!r} has {len(stream)} characters: 1 to 255 are allowed")
    if "\0" in stream or not stream.isprintable():
        raise ConfigError(f"stream {stream!r} contains non-printable characters: remove them")
    return stream


def _timeout(name: str, executor: Executor, timeout: float | timedelta | None) -> timedelta | None:
    if timeout is None:
        return None
    if executor is Executor.THREAD:
        message = f"consumer {name!r}: a thread cannot be stopped at a timeout: make the handler async, or omit timeout"
        raise ConfigError(message)
    return to_span(timeout, "timeout")


def _on_error(name: str, value: object) -> OnError:
    try:
        return OnError(cast("str", value))
    except ValueError:
        choices = ", ".join(repr(str(choice)) for choice in OnError)
        raise ConfigError(f"consumer {name!r}: on_error={value!r} is not one of {choices}") from None


def _count(name: str, what: str, value: object, most: int) -> int:
    return whole_number(value, f"consumer {name!r}: {what}", 1, most)


class Consumers:
    """The consumers of an app, by name."""

    def __init__(self) -> None:
        self._by_name: dict[str, Consumer] = {}

    def add(self, consumer: Consumer) -> None:
        """Register a consumer; raises `ConfigError` if the name is taken."""
        if consumer.name in self._by_name:
            raise ConfigError(f"consumer {consumer.name!r} is already registered: choose another name")
        self._by_name[consumer.name] = consumer

    def get(self, name: str) -> Consumer:
        """Return a consumer; raises `ConsumerNotFound`."""
        try:
            return self._by_name[name]
        except KeyError:
            known = ", ".join(sorted(self._by_name)) or "none"
            raise ConsumerNotFound(f"no consumer is named {name!r}; registered consumers: {known}") from None

    def __iter__(self) -> Iterator[Consumer]:
        """Iterate over all consumers."""
        return iter(self._by_name.values())

    def __len__(self) -> int:
        """Return the number of consumers."""
        return len(self._by_name)
