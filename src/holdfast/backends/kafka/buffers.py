"""The records of one partition that were read ahead, for one grant.

The reader's thread adds records, and the event loop takes them. A buffer keeps what it has returned until a later
position is asked for: a handler that failed asks again. A full buffer is not filled further until it is half empty.
"""

from __future__ import annotations

import asyncio
import threading
import time
from bisect import bisect_right
from collections.abc import Callable, Sequence
from contextlib import suppress
from operator import attrgetter
from typing import Final

from holdfast.backends.kafka.homes import Home
from holdfast.errors import EventsGone, HoldfastError
from holdfast.model.event import StoredEvent
from holdfast.model.payload_limit import within

MOST_RECORDS: Final = 4000
MOST_BYTES: Final = 4 * 1024 * 1024
_FIRST_ANSWER: Final = 0.5  # seconds to wait for the first records of a buffer, or for its end
_MORE_ANSWERS: Final = 0.02  # and for the rest of what was asked for: records arrive in portions
BATCHES_AT_ONCE: Final = 5
"""A fetch asks for so many batches, and waits for one: a look at the share for every 100 events takes a tenth of the
CPU time of consuming."""
_WIDEST: Final = 4  # bytes of a character in UTF-8
_position = attrgetter("position")


class PartitionBuffer:
    """Records of one partition, in order, from a position on."""

    def __init__(
        self,
        home: Home,
        partition_id: int,
        *,
        generation: int,
        after: int,
        has_space: Callable[[], None] = lambda: None,
    ) -> None:
        """`has_space` is called when a buffer that is not being read may be read on."""
        self.home = home
        self.partition_id = partition_id
        self.generation = generation
        self.read_to = after
        """The position up to which records have arrived: the offset from which the reader continues."""
        self.is_assigned = False
        """Whether the reader has assigned the partition at `read_to`; only its thread changes it."""
        self.is_dropped = False
        """Whether the reader has stopped reading it, because it was not used."""
        self.used = time.monotonic()
        self._kept_from = after
        self._has_space = has_space
        self._events: list[StoredEvent] = []
        self._bytes = 0
        self._is_at_end = False
        self._is_idle = False
        self._error: HoldfastError | None = None
        self._changed: tuple[asyncio.AbstractEventLoop, asyncio.Event] | None = None
        self._awaited: tuple[int, int] | None = None
        """A position, and the number of records past it for which a call waits; None once it has been notified."""
        self._lock = threading.Lock()

    # --- the reader's thread ------------------------------------------------------------------------------------------

    def add(self, events: Sequence[StoredEvent]) -> bool:
        """Add records that have arrived, in order; True if the consumer is idle, because it has found nothing."""
        with self._lock:
            new = events[bisect_right(events, self.read_to, key=_position) :]
            if not new:
                return False
            self._events += new
            self._bytes += _size(new)
            self.read_to = new[-1].position
            self._is_at_end = False
            was_idle, self._is_idle = self._is_idle, False
            is_answer = self._awaited is not None and self._has(*self._awaited)
        if is_answer:
            self._notify()
        return was_idle

    def ended_at(self, position: int) -> bool:
        """Note that nothing is left up to this position: records that were compacted, aborted, or control records.

        True if an idle consumer does not know that yet.
        """
        with self._lock:
            is_news = self._is_idle and position > self.read_to
            self.read_to = max(self.read_to, position)
            self._is_at_end = True
        self._notify()
        return is_news

    def drop(self) -> None:
        """Drop the records: no fetch has asked for them for a long time."""
        with self._lock:
            self.is_dropped = True
            self._is_at_end = False  # what has been cleared was not taken
            self._events.clear()
            self._bytes = 0
        self._notify()

    def fail(self, error: HoldfastError) -> None:
        """Note that the partition cannot be read further."""
        with self._lock:
            self._error = error
        self._notify()

    @property
    def has_failed(self) -> bool:
        """Whether it can no longer be used."""
        return self._error is not None

    @property
    def is_full(self) -> bool:
        """Whether no more should be read now."""
        return len(self._events) >= MOST_RECORDS or self._bytes >= MOST_BYTES

    @property
    def has_room(self) -> bool:
        """Whether a buffer that was full should be read on."""
        return len(self._events) < MOST_RECORDS // 2 and self._bytes < MOST_BYTES // 2

    def _notify(self) -> None:
        self._awaited, waiting = None, self._changed
        if waiting is not None:
            with suppress(RuntimeError):  # the loop was closed: no call waits any more
                waiting[0].call_soon_threadsafe(waiting[1].set)

    # --- the event loop -----------------------------------------------------------------------------------------------

    def serves(self, generation: int, after: int) -> bool:
        """Return whether the records after a position can be taken from here, under this grant."""
        return self.generation == generation and self._kept_from <= after and not self.is_dropped and not self._error

    async def take(
        self, after: int, limit: int, max_bytes: int, *, keep_after: int | None = None
    ) -> tuple[list[StoredEvent], int]:
        """Return the next events after a position, and the position up to which there are no others.

        Records up to `keep_after`, by default up to the position itself, are not asked for again and are forgotten.
        Waits a moment for the first batch (see `BATCHES_AT_ONCE`). Raises the error that the reader met, such as
        `EventsGone` for deleted records; the buffer cannot be used afterwards.
        """
        self.used = time.monotonic()
        enough = -(-limit // BATCHES_AT_ONCE)
        if not self._answers(after, enough):
            await self._wait(after, enough)
        with self._lock:
            if self._error is not None:
                raise self._error
            if self.is_dropped:  # since the caller has found it; its next fetch begins another
                return [], 0
            self._forget(after if keep_after is None else keep_after)
            begin = bisect_right(self._events, after, key=_position)
            events = self._events[begin : begin + limit]
            if self._bytes * _WIDEST > max_bytes:  # else all that is here may be returned
                events = within(events, max_bytes)
            last = events[-1].position if events else after
            is_all = not self._events or self._events[-1].position <= last
            passed = self.read_to if self._is_at_end and is_all else 0
            self._is_idle = not events
            may_read_on = self.has_room and not self.is_assigned
        if may_read_on:
            self._has_space()
        return events, passed

    async def _wait(self, after: int, enough: int) -> None:
        """Wait a while for the first record past a position, and then for so many."""
        changed = asyncio.Event()
        self._changed = (asyncio.get_running_loop(), changed)
        try:
            await self._until(changed, after, 1, _FIRST_ANSWER)
            await self._until(changed, after, enough, _MORE_ANSWERS)
        finally:
            self._changed = self._awaited = None

    async def _until(self, changed: asyncio.Event, after: int, number: int, seconds: float) -> None:
        """Wait until so many records past a position are here, or the end is reached, or the time is up."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while not self._answers(after, number):
                    await changed.wait()
                    changed.clear()

    def _answers(self, after: int, number: int) -> bool:
        with self._lock:
            is_over = self.is_dropped or self._is_at_end or self._error is not None
            found = is_over or self._has(after, number)
            self._awaited = None if found else (after, number)
        return found

    def _has(self, after: int, number: int) -> bool:
        place = len(self._events) - number
        return place >= 0 and self._events[place].position > after

    def _forget(self, after: int) -> None:
        known = bisect_right(self._events, after, key=_position)
        self._bytes -= _size(self._events[:known])
        del self._events[:known]
        self._kept_from = max(self._kept_from, after)


def _size(events: Sequence[StoredEvent]) -> int:
    """Return the size of what other programs choose: payload, key and headers."""
    size = sum([len(event.payload) + len(event.stream) for event in events])
    headers = [event.headers for event in events if event.headers]
    return size + sum([len(name) + len(value) for given in headers for name, value in given.items()])


def gone(buffer: PartitionBuffer) -> EventsGone:
    """Return the error for records that were deleted before they were read."""
    home = buffer.home
    return EventsGone(
        f"partition {buffer.partition_id} of category {home.category!r} ({home}) has no offset {buffer.read_to}: "
        "retention, or a new topic of this name, has removed events that the consumer had not read. Pause the "
        "consumer, and choose where it continues: holdfast consumer reset NAME --to beginning"
    )


def deleted(home: Home, *, is_back: bool) -> EventsGone:
    """Return the error for a topic that is not the one whose positions are stored."""
    what = "deleted and created again: positions in it mean other records now" if is_back else "deleted"
    then = "Choose" if is_back else "Create it again, and choose"
    return EventsGone(
        f"topic {home.topic} was {what} (it was {home}). {then} where its consumers continue: holdfast consumer reset "
        "NAME --to beginning"
    )
