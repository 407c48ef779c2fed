"""The port of a relay: copies the events of a category in the store to another system, once and in order.

```text
   per grant     begin ──▶ fences every earlier sender of the partition, then reads what was sent last
                 verify ─▶ the grant is live: a reset comes later, and fences this sender in turn
   per batch     send  ──▶ events and "sent up to here" become visible there together, or not at all
                       ──▶ the position of the consumer moves in the store, fenced by its generation
```

A crash between the last two steps sends nothing twice: what was sent is dropped after the next `begin`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from holdfast.model.event import StoredEvent
from holdfast.store.stream_values import Category


class SentUpTo(NamedTuple):
    """The last event of a partition that the other system has: its position in the store, and its id."""

    position: int = 0
    event_id: str = ""


class EventRelay(Protocol):
    """The sending side of a relay. Its target has as many partitions as the category; each is sent to its number."""

    async def partitions(self) -> int | None:
        """Return the number of partitions of the target; None if it does not exist."""
        ...

    async def check(self, category: Category, elsewhere: Sequence[Category]) -> None:
        """Create the target if it does not exist; raises `ConfigError` if it cannot take the events of the category.

        `elsewhere` are the categories whose events are not in the store: their targets are written by appends.
        """
        ...

    async def begin(self, partition_id: int, generation: int) -> SentUpTo:
        """Return what was sent last; a repeat under the same grant is answered from memory.

        From now on no earlier sender of the partition, in whichever process, can send.
        """
        ...

    async def send(self, partition_id: int, generation: int, events: Sequence[StoredEvent]) -> None:
        """Send events that follow what was sent last, all or none, after `begin`; blocks no event loop.

        Raises `StoreUnavailable` or `OutcomeUnknown`; then `begin` looks again.
        """
        ...

    def end(self, partition_id: int, generation: int) -> None:
        """End the client of a partition after its last batch under this grant; does not block."""
        ...

    async def begin_again(self, partitions: int) -> None:
        """Fence all senders, and forget what was sent: the next grant sends from the position of the consumer."""
        ...

    async def close(self) -> None:
        """End the clients of this process."""
        ...
