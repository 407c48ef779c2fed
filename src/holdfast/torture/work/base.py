"""What a kind of work is: how it is enqueued, and which handlers do it.

A new feature adds its work in one module beside this one, with its handlers at the top (a job child must find them) and
its `WORKS`, and names it in `holdfast.torture.work.catalogue`.
"""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Protocol

import msgspec

from holdfast.app.tasks import TaskHandle
from holdfast.torture.events import Takes

_NO_ARGUMENTS: Mapping[str, Any] = {}


class Order(msgspec.Struct, frozen=True, kw_only=True):
    """Jobs to be enqueued: calls of one task under the same options."""

    task: TaskHandle[..., Any]
    calls: Sequence[Mapping[str, Any]]
    options: Mapping[str, Any] = {}


class Follow(Protocol):
    """What a producer can do to jobs that it has enqueued."""

    async def cancel(self, job_id: str) -> None:
        """Ask to cancel a job."""
        ...

    async def retry(self, job_id: str) -> None:
        """Ask to run an ended job again."""
        ...

    async def reset(self, job_id: str) -> bool:
        """Take the lease of a job away; False if it does not run."""
        ...

    async def pause(self, queue: str, seconds: float) -> None:
        """Let nobody claim from a queue for some time."""
        ...

    async def after(self, seconds: float) -> bool:
        """Let some time pass; False if there is none left."""
        ...


class Work(msgspec.Struct, frozen=True, kw_only=True):
    """A kind of work.

    `weight` is its share of all jobs; `most` bounds how many of it a run may have, however long it is; `single` keeps
    it out of bulk enqueues, because each of its jobs is dear; `in_turn` keeps it out of concurrent ones, because its
    order is looked at. `draw` returns jobs to enqueue, `follow` is what the
    producer does to each of them afterwards.
    """

    name: str
    weight: float
    takes: Takes
    draw: Callable[[random.Random, int], Order]
    most: int | None = None
    single: bool = False
    in_turn: bool = False
    follow: Callable[[Follow, str, random.Random], Awaitable[None]] | None = None


def calls_of(task: TaskHandle[..., Any], **options: Any) -> Callable[[random.Random, int], Order]:
    """Return a draw of calls without arguments."""

    def draw(_: random.Random, count: int) -> Order:
        return Order(task=task, calls=[_NO_ARGUMENTS] * count, options=options)

    return draw
