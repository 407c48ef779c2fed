"""Reads partitions ahead: one client and one thread for each consumer of a process.

Kafka's groups take no part: the reader assigns exactly the partitions that this node was granted, from the positions
in the store, and commits nothing.

```text
   fetch ──▶ buffer of the grant ──(none, or not from there)──▶ command to the thread: assign at the position
                 ▲                                                   │
                 └────────────── records, ends, errors ◀── poll ◀────┘
```

Only the thread assigns and dispatches. A buffer becomes that of its partition when its own assignment has run: records
of an earlier one, which still arrive after a jump to an earlier position, would otherwise leave a gap. A full buffer is
unassigned and assigned again, never paused: a pause survives both, and the partition would deliver no more records.
While all are full the thread waits for commands, and a buffer that has space again sends one: what is left in it is
handled within 20 to 30 ms.
"""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from itertools import groupby
from typing import Any, Final

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from holdfast.backends.kafka.buffers import MOST_RECORDS, PartitionBuffer, gone
from holdfast.backends.kafka.envelope import event_of
from holdfast.backends.kafka.error_map import ClientHealth, error_of, mapped
from holdfast.backends.kafka.homes import Home
from holdfast.backends.kafka.location import KafkaLocation
from holdfast.errors import StoreUnavailable
from holdfast.model.event import StoredEvent

_logger = logging.getLogger("holdfast.kafka")
POLL: Final = 0.05
AT_ONCE: Final = 100
_LOOK: Final = ()  # the command to do nothing but look at the buffers
_UNUSED_FOR: Final = 60.0  # seconds after which a buffer without a fetch is dropped
_SWEEP: Final = 5.0
_READ_WITHIN: Final = 20.0
_DATED_WITHIN: Final = 2.0
_ENDING: Final = 5.0
READER_SETTINGS: Final = {
    "enable.auto.commit": False,
    "enable.auto.offset.store": False,
    "auto.offset.reset": "error",  # records that are gone are reported, never skipped
    "enable.partition.eof": True,
    "isolation.level": "read_committed",
    "fetch.queue.backoff.ms": 10,  # by default a second: 20,000 records a second instead of 59,000
    "queued.min.messages": MOST_RECORDS,
    "fetch.wait.max.ms": 50,
}
GROUP_PROTOCOL: Final = {"group.protocol": "consumer"}
"""For a member of a group; a reader joins none."""
Key = tuple[str, int]
Place = tuple[str, int, int]
"""A topic, a partition, and a position in it."""


class KafkaReader:
    """The partitions of one consumer in this process; `arrived` is called, in the thread, when records have come."""

    def __init__(self, location: KafkaLocation, health: ClientHealth, name: str, arrived: Callable[[], None]) -> None:
        self._health = health
        self._arrived = arrived
        self._wanted: dict[Key, PartitionBuffer] = {}  # by the event loop: the newest buffer of each partition
        self._buffers: dict[Key, PartitionBuffer] = {}  # by the thread: the buffer whose assignment has run
        self._commands: queue.SimpleQueue[PartitionBuffer | Key | tuple[()] | None] = queue.SimpleQueue()
        self._swept = time.monotonic()
        self._client = Consumer(READER_SETTINGS | location.client(health.on_error) | {"group.id": f"holdfast-{name}"})
        self._thread = threading.Thread(target=self._run, name=f"holdfast-kafka-{name}", daemon=True)
        self._thread.start()

    # --- the event loop -----------------------------------------------------------------------------------------------

    def known(self, home: Home, partition_id: int, *, generation: int, after: int) -> PartitionBuffer | None:
        """Return the buffer of a grant that has the records after a position, if there is one."""
        known = self._wanted.get((home.topic, partition_id))
        return known if known is not None and known.serves(generation, after) else None

    def begin(self, home: Home, partition_id: int, *, generation: int, after: int) -> PartitionBuffer:
        """Return a new buffer of a grant, filled with the records after a position."""
        key = (home.topic, partition_id)
        buffer = PartitionBuffer(
            home, partition_id, generation=generation, after=after, has_space=partial(self._commands.put, _LOOK)
        )
        self._wanted[key] = buffer
        self._commands.put(buffer)
        return buffer

    def drop(self, home: Home, partition_id: int, generation: int) -> None:
        """Stop reading a partition, unless a later grant reads it."""
        key = (home.topic, partition_id)
        known = self._wanted.get(key)
        if known is not None and known.generation <= generation:
            del self._wanted[key]
            self._commands.put(key)

    @property
    def is_alive(self) -> bool:
        """Whether the thread runs; it ends by an unexpected error, which is in the log."""
        return self._thread.is_alive()

    def stop(self) -> None:
        """Let the thread end."""
        self._commands.put(None)

    def join(self) -> None:
        """Wait until the thread has ended, and closed the client; blocks."""
        self._thread.join(_ENDING)

    # --- the thread ---------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            while self._run_commands(self._patience()):
                self._read()
                self._keep_within_bounds()
        except Exception:
            _logger.exception("the reader %s has ended; the next fetch starts another", self._thread.name)
            for buffer in [*self._buffers.values(), *self._wanted.values()]:
                buffer.fail(StoreUnavailable("the reader has ended by an error, which is in the log"))
        finally:
            self._client.close()

    def _patience(self) -> float | None:
        """Return how long to wait for a command; None while there are records to poll for."""
        if not self._buffers:
            return _SWEEP
        return None if self._is_reading else POLL  # all are full

    @property
    def _is_reading(self) -> bool:
        return any(buffer.is_assigned for buffer in self._buffers.values())

    def _run_commands(self, patience: float | None) -> bool:
        """Run the commands that wait, after waiting for the first; False at the end."""
        while True:
            try:
                command = self._commands.get_nowait() if patience is None else self._commands.get(timeout=patience)
            except queue.Empty:
                return True
            patience = None
            if command is None:
                return False
            if isinstance(command, PartitionBuffer):
                self._replace(command)
            elif command:
                self._forget(command)

    def _replace(self, buffer: PartitionBuffer) -> None:
        key = (buffer.home.topic, buffer.partition_id)
        self._forget(key)
        self._buffers[key] = buffer
        self._assign(buffer)

    def _forget(self, key: Key) -> None:
        buffer = self._buffers.pop(key, None)
        if buffer is not None:
            self._unassign(buffer)

    def _assign(self, buffer: PartitionBuffer) -> None:
        self._client.incremental_assign([TopicPartition(buffer.home.topic, buffer.partition_id, buffer.read_to)])
        buffer.is_assigned = True

    def _unassign(self, buffer: PartitionBuffer) -> None:
        if buffer.is_assigned:
            self._client.incremental_unassign([TopicPartition(buffer.home.topic, buffer.partition_id)])
            buffer.is_assigned = False

    def _read(self) -> None:
        """Wait a moment for a record, then take all that are there: `consume` would wait for the whole number."""
        first = self._client.poll(POLL if self._is_reading else 0)
        if first is None:
            return
        is_awaited = False
        for (topic, number, is_record), run in groupby((first, *self._client.consume(AT_ONCE, 0)), _kind):
            is_awaited |= self._dispatch((topic, number), list(run), is_record=is_record)
        if is_awaited:
            self._arrived()

    def _dispatch(self, key: Key, messages: Sequence[Any], *, is_record: bool) -> bool:
        """Give records, or reports, to the buffer of their partition; True if an idle consumer is to look."""
        buffer = self._buffers.get(key)
        if buffer is None or not buffer.is_assigned:
            return False
        if is_record:
            return buffer.add(_events(buffer.home, messages))
        # Errors that pass, such as an election of a leader, fail it too: the next fetch begins with another buffer.
        is_awaited = False
        for message in messages:
            is_awaited |= deliver(buffer, message, self._health)
        if buffer.has_failed:
            self._unassign(buffer)
        return is_awaited

    def _keep_within_bounds(self) -> None:
        for buffer in self._buffers.values():
            if buffer.is_assigned and buffer.is_full:
                self._unassign(buffer)
            elif not buffer.is_assigned and buffer.has_room and not buffer.has_failed:
                self._assign(buffer)
        now = time.monotonic()
        if now - self._swept > _SWEEP:
            self._swept = now
            for key, buffer in list(self._buffers.items()):
                if now - buffer.used > _UNUSED_FOR:  # its consumer ended without a release, or its handler is slow
                    buffer.drop()
                    self._forget(key)


def _kind(message: Any) -> tuple[str, int, bool]:
    """Return the topic and the partition of a message, and whether it is a record, not a report of the client."""
    return message.topic(), message.partition(), message.error() is None


def _events(home: Home, messages: Iterable[Any]) -> list[StoredEvent]:
    category, topic_id = home.category, home.topic_id
    return [event_of(category, topic_id, message) for message in messages]


def deliver(buffer: PartitionBuffer, message: Any, health: ClientHealth) -> bool:
    """Give a buffer its record, or what the client reports of its partition; True if an idle consumer is to look."""
    error: KafkaError | None = message.error()
    if error is None:
        return buffer.add(_events(buffer.home, [message]))
    code = error.code()
    if code == KafkaError._PARTITION_EOF:  # noqa: SLF001 - the client's own codes have such names
        health.answered()
        return buffer.ended_at(message.offset())
    is_gone = code == KafkaError._AUTO_OFFSET_RESET  # noqa: SLF001
    buffer.fail(gone(buffer) if is_gone else mapped(error, f"read {buffer.home}", health))
    return True


def read_once(
    location: KafkaLocation, health: ClientHealth, home: Home, partition_id: int, *, after: int, limit: int
) -> list[StoredEvent]:
    """Return the next records of a partition, up to its end, with a client for this call; blocks."""
    client = Consumer(READER_SETTINGS | location.client(health.on_error) | {"group.id": "holdfast-read"})
    buffer = PartitionBuffer(home, partition_id, generation=0, after=after)
    events: list[StoredEvent] = []
    until = time.monotonic() + _READ_WITHIN
    try:
        client.assign([TopicPartition(home.topic, partition_id, after)])
        while len(events) < limit and time.monotonic() < until:
            message = client.poll(POLL)
            if message is None:
                continue
            error = message.error()
            if error is None:
                events.append(event_of(home.category, home.topic_id, message))
            elif error.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001
                return events
            elif error.code() == KafkaError._AUTO_OFFSET_RESET:  # noqa: SLF001
                raise gone(buffer)
            elif not error.retriable():
                raise mapped(error, f"read {home}", health)
    except KafkaException as error:
        raise mapped(error_of(error), f"read {home}", health) from error
    finally:
        client.close()
    if len(events) < limit:
        raise StoreUnavailable(f"{home} was not read to its end within {_READ_WITHIN} s")
    return events


def first_recorded(location: KafkaLocation, health: ClientHealth, places: Collection[Place]) -> dict[Place, int]:
    """Return when the first record past each place was recorded, in microseconds; blocks for a moment.

    Places without such a record, or for which no broker has answered in time, are missing.
    """
    found: dict[Place, int] = {}
    left = set(places)
    until = time.monotonic() + _DATED_WITHIN
    while left and time.monotonic() < until:
        turn = {(topic, number): position for topic, number, position in left}  # a client reads one place of each
        try:
            found |= _first_of(location, health, turn, until)
        except KafkaException as error:
            raise mapped(error_of(error), "find when the next events were recorded", health) from error
        left -= {(*key, position) for key, position in turn.items()}
    return found


def _first_of(location: KafkaLocation, health: ClientHealth, turn: Mapping[Key, int], until: float) -> dict[Place, int]:
    settings = READER_SETTINGS | {"auto.offset.reset": "earliest", "queued.min.messages": 1}
    client = Consumer(settings | location.client(health.on_error) | {"group.id": "holdfast-read"})
    waiting, found = dict(turn), dict[Place, int]()
    try:
        client.assign([TopicPartition(*key, position) for key, position in turn.items()])
        while waiting and time.monotonic() < until:
            message = client.poll(POLL)
            if message is None:
                continue
            key = (str(message.topic()), int(message.partition() or 0))
            position = waiting.pop(key, None)
            if position is not None and message.error() is None:
                found[*key, position] = max(0, message.timestamp()[1]) * 1000
    finally:
        client.close()
    return found
