"""A kind of work: how it is enqueued, and its handlers.

A new feature adds its work in one module of this package, with its handlers at the top (a job child must find them) and
its `WORKS`, and lists it in `holdfast.torture.work.catalogue`.
"""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final, Protocol

import msgspec

from holdfast.app.tasks import TaskHandle
from holdfast.model.limits import Limit
from holdfast.torture.events import Takes

_NO_ARGUMENTS: Mapping[str, Any] = {}


class Order(msgspec.Struct, frozen=True, kw_only=True):
    """Jobs to be enqueued: calls of one task with the same options."""

    task: TaskHandle[..., Any]
    calls: Sequence[Mapping[str, Any]]
    options: Mapping[str, Any] = {}


class Follow(Protocol):
    """The operator actions of a producer on its jobs."""

    async def cancel(self, job_id: str) -> None:
        """Cancel a job."""
        ...

    async def retry(self, job_id: str) -> None:
        """Retry an ended job."""
        ...

    async def reset(self, job_id: str) -> bool:
        """Reset the lease of a job; False if it is not running."""
        ...

    async def pause(self, queue: str, seconds: float) -> None:
        """Pause a queue for some time."""
        ...

    async def limit(self, queue: str, limit: Limit) -> None:
        """Set the limit of a queue."""
        ...

    async def schedule(self, name: str, task: TaskHandle[..., Any], seconds: float) -> None:
        """Let a task run again and again for some time."""
        ...

    async def after(self, seconds: float) -> bool:
        """Wait for some time; False if the producer is about to exit."""
        ...


class Work(msgspec.Struct, frozen=True, kw_only=True):
    """A kind of work.

    `weight` is its share of all jobs; `most` bounds its number in a run of any length; `single` keeps it out of bulk
    enqueues, because each of its jobs is expensive; `in_turn` keeps it out of concurrent ones, because its order is
    checked. Jobs that are enqueued at once form chains of `chain` jobs. `draw` returns jobs to enqueue, `follow` is
    what the producer does to each of them afterwards. Only a store with all the capabilities in `needs` gets such work.
    """

    name: str
    weight: float
    takes: Takes
    draw: Callable[[random.Random, int], Order]
    most: int | None = None
    single: bool = False
    in_turn: bool = False
    chain: int = 0
    needs: frozenset[str] = frozenset()
    follow: Callable[[Follow, str, random.Random], Awaitable[None]] | None = None


COMMITS_EFFECTS: Final = frozenset({"commits_effects"})
"""What work needs whose handler opens a transaction itself, and not by `take_effect`."""
JOINS_TRANSACTIONS: Final = frozenset({"joins_transactions"})
"""What work needs that writes in a transaction of its own connection."""
QUEUES_EFFECTS: Final = frozenset({"queues_effects"})
"""What work needs whose commands fail at the end of the transaction."""


def calls_of(task: TaskHandle[..., Any], **options: Any) -> Callable[[random.Random, int], Order]:
    """Return a draw of calls without arguments."""

    def draw(_: random.Random, count: int) -> Order:
        return Order(task=task, calls=[_NO_ARGUMENTS] * count, options=options)

    return draw
