"""What runs around each enqueue and append, in the process that sends: it may add headers, and nothing else.

A function with one `yield`, at which the store is called. Headers that it sets before the `yield` are added to every
job or event of the call; a header that the caller has given is kept. What it raises fails the call.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, TypeVar

import msgspec

from holdfast.model.event import NewEvent
from holdfast.model.job import NewJob

M = TypeVar("M", NewJob, NewEvent)
R = TypeVar("R")
Sending = Callable[["SendCall"], Generator[None]]


class SendCall(msgspec.Struct):
    """An enqueue with its jobs, or an append with its events, as what runs around it sees it."""

    jobs: Sequence[NewJob] = ()
    events: Sequence[NewEvent] = ()
    headers: dict[str, str] = {}
    """Headers to add to each of them."""


async def send_jobs(
    around: Sequence[Sending], jobs: Sequence[NewJob], run: Callable[[Sequence[NewJob]], Awaitable[R]]
) -> R:
    """Enqueue jobs inside of what runs around it."""
    call = SendCall(jobs=jobs)
    with _entered(around, call):
        return await run(_with_headers(jobs, call.headers))


async def send_events(
    around: Sequence[Sending], events: Sequence[NewEvent], run: Callable[[Sequence[NewEvent]], Awaitable[R]]
) -> R:
    """Append events inside of what runs around it."""
    call = SendCall(events=events)
    with _entered(around, call):
        return await run(_with_headers(events, call.headers))


def _entered(around: Sequence[Sending], call: SendCall) -> ExitStack[Any]:
    stack = ExitStack()
    with stack:
        for function in around:
            stack.enter_context(contextmanager(function)(call))
        return stack.pop_all()


def _with_headers(messages: Sequence[M], added: dict[str, str]) -> Sequence[M]:
    if not added:
        return messages
    merged: dict[int, dict[str, str]] = {}  # all jobs of an enqueue_many share one mapping
    for message in messages:
        if id(message.headers) not in merged:
            merged[id(message.headers)] = {**added, **(message.headers or {})}
    return [msgspec.structs.replace(message, headers=merged[id(message.headers)]) for message in messages]
