"""A member of a consumer group: one client and one thread for each consumer of a process.

```text
   on_assign   read offset and generation · commit the offset with generation + 1 · read on from there
   on_revoke   ask the node to release · wait for its last commit, at most the drain time · stop reading
   on_lost     drop: the group has gone on without this member
```

Only the thread calls the client: a call from another thread waits until no poll runs, which may be never. So commits
are asked of the thread, which answers them between two polls, and while it waits for a release.
The callbacks run in the thread, inside `poll`, and never raise: an error ends the member, and the node joins again.
A full buffer is paused and resumed. Unassigning, as the reader of a SQL store does, would change what the group counts
as owned; and because a pause survives a reassignment, each assignment resumes.
"""

from __future__ import annotations

import asyncio
import logging
import queue
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from typing import Any, Final

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from holdfast.backends.kafka.buffers import PartitionBuffer
from holdfast.backends.kafka.error_map import ClientHealth, error_of, mapped
from holdfast.backends.kafka.groups.offsets import CommittedOffset, is_ours
from holdfast.backends.kafka.groups.shares import GroupShares, HeldShare
from holdfast.backends.kafka.homes import Home
from holdfast.backends.kafka.location import KafkaLocation
from holdfast.backends.kafka.reading import AT_ONCE, GROUP_PROTOCOL, POLL, READER_SETTINGS, deliver
from holdfast.backends.kafka.topics import KafkaTopics
from holdfast.errors import CategoryNotFound, ConfigError, HoldfastError, StoreUnavailable
from holdfast.model.allocation import Grant, Share
from holdfast.store.stream_values import CommitVerdict

_logger = logging.getLogger("holdfast.kafka")
_TIMEOUT: Final = 20.0
_DRAIN: Final = 240.0  # seconds for a release where the timing has no limit: the client may be silent for 300
_END: Final = 10.0
_QUICK: Final = 0.002  # seconds of a poll while commits are asked for
_BUSY: Final = 0.2
_NOT_MEMBER: Final = frozenset(
    {
        KafkaError.UNKNOWN_MEMBER_ID,
        KafkaError.FENCED_MEMBER_EPOCH,
        KafkaError.FENCED_INSTANCE_ID,
        KafkaError.ILLEGAL_GENERATION,
    }
)
_ID_TAKEN: Final = frozenset({KafkaError.UNRELEASED_INSTANCE_ID, KafkaError.FENCED_INSTANCE_ID})
_FATAL: Final = _ID_TAKEN | {KafkaError._FATAL}  # noqa: SLF001 - the client's own codes have such names


class _CommitRequest:
    """A position to commit, and the error that it was answered with."""

    def __init__(self, grant: Grant, position: int) -> None:
        self.grant = grant
        self.offset = CommittedOffset(position, grant.generation)
        self.answer: Future[KafkaError | None] = Future()


class GroupMember:
    """Consumes the partitions that the group assigns to this process; `changed` is called when that changes."""

    def __init__(  # noqa: PLR0913 - the clients of a process, and what is consumed
        self,
        location: KafkaLocation,
        health: ClientHealth,
        topics: KafkaTopics,
        shares: GroupShares,
        *,
        consumer: str,
        category: str,
        node_id: str,
        is_fixed: bool,
        drain: float | None,
        changed: Callable[[], None],
    ) -> None:
        """With a fixed node id, a restart within the session time of the group gets its partitions back."""
        self.failure: HoldfastError | None = None
        self._consumer = consumer
        self._category = category
        self._topic = location.topic(category)
        self._health = health
        self._topics = topics
        self._shares = shares
        self._node_id = node_id
        self._drain = _DRAIN if drain is None else min(drain, _DRAIN)
        self._changed = changed
        self._buffers: dict[int, PartitionBuffer] = {}
        self._paused: set[int] = set()
        self._closing = threading.Event()
        self._has_ended = False
        self._requests: queue.SimpleQueue[_CommitRequest] = queue.SimpleQueue()
        self._replacements: queue.SimpleQueue[PartitionBuffer] = queue.SimpleQueue()
        self._busy_until = 0.0
        own = {"group.id": location.group(consumer), "client.id": node_id, **GROUP_PROTOCOL}
        fixed = {"group.instance.id": node_id} if is_fixed else {}
        self._reported: KafkaError | None = None  # a fatal error, after which the client answers no call
        self._client: Any = Consumer(READER_SETTINGS | location.client(self._on_error) | own | fixed)
        self._thread = threading.Thread(target=self._run, name=f"holdfast-kafka-group-{consumer}", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Leave the group without a further commit; blocks."""
        self._closing.set()
        self._shares.lose(self._shares.of(self._consumer))
        self._thread.join(_END)

    async def commit(self, held: HeldShare, position: int) -> CommitVerdict:
        """Commit a position; LOST if the group no longer knows this member."""
        share = held.grant.share
        request = _CommitRequest(held.grant, position)
        self._requests.put(request)
        if self._has_ended:
            self._refuse_requests()
        refusal = await asyncio.wrap_future(request.answer)
        if refusal is None:
            return CommitVerdict.DONE
        if refusal.code() in _NOT_MEMBER:
            self._shares.lose([share])
            return CommitVerdict.LOST
        doing = f"commit position {position} of consumer {share.consumer}, partition {share.partition_id}"
        raise mapped(refusal, doing, self._health)

    def read_again(self, held: HeldShare) -> None:
        """Replace the buffer of a share, which has failed, by one that begins at the committed position."""
        failed, generation = held.buffer, held.grant.generation
        held.buffer = PartitionBuffer(failed.home, failed.partition_id, generation=generation, after=held.position)
        self._replacements.put(held.buffer)

    def _on_error(self, error: KafkaError) -> None:
        if error.fatal() or error.code() in _FATAL:
            self._reported = error
        self._health.on_error(error)

    # --- the thread ---------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            self._client.subscribe(
                [self._topic], on_assign=self._on_assign, on_revoke=self._on_revoke, on_lost=self._on_lost
            )
            while self.failure is None and self._reported is None and not self._closing.is_set():
                self._read()
                self._keep_within_bounds()
                self._replace_failed()
                self._answer_requests()
        except Exception as error:
            if self._reported is None:
                _logger.exception("the member of group %s has ended", self._consumer)
                self.failure = StoreUnavailable(f"the member of group {self._consumer} has ended: {error!r}")
        finally:
            if self._reported is not None:
                self.failure = self._fatal(self._reported)
            self._has_ended = True
            self._refuse_requests()
            self._shares.lose(self._shares.of(self._consumer))
            self._client.close()
            self._changed()

    def _answer_requests(self) -> None:
        """Commit what is asked for, unless its share has ended: the broker would take it, and undo its next owner's."""
        for request in self._asked():
            if request.answer.set_running_or_notify_cancel():
                is_live = self._shares.live(request.grant) is not None  # until this thread has answered
                offsets = {request.grant.share.partition_id: request.offset}
                request.answer.set_result(self._commit(offsets) if is_live else _refused())
            self._busy_until = time.monotonic() + _BUSY

    def _refuse_requests(self) -> None:
        """Refuse commits that come too late: this process is no longer a member."""
        for request in self._asked():
            if request.answer.set_running_or_notify_cancel():
                request.answer.set_result(_refused())

    def _asked(self) -> Iterator[_CommitRequest]:
        with suppress(queue.Empty):
            while True:
                yield self._requests.get_nowait()

    def _commit(self, offsets: Mapping[int, CommittedOffset]) -> KafkaError | None:
        places = [
            TopicPartition(self._topic, number, offset.position, offset.metadata) for number, offset in offsets.items()
        ]
        try:
            answers = self._client.commit(offsets=places, asynchronous=False)
        except KafkaException as error:
            return error_of(error)
        return next((answer.error for answer in answers if answer.error is not None), None)

    def _read(self) -> None:
        first = self._client.poll(_QUICK if time.monotonic() < self._busy_until else POLL)
        if first is None:
            return
        for message in (first, *self._client.consume(AT_ONCE, 0)):
            error = message.error()
            if error is not None:
                self._on_error(error)
                if error.retriable():  # the client repeats the request by itself
                    continue
            buffer = self._buffers.get(message.partition())
            if buffer is not None and message.topic() == self._topic:
                deliver(buffer, message, self._health)
        self._changed()

    def _fatal(self, error: KafkaError) -> HoldfastError:
        if error.code() in _ID_TAKEN or "instance ID" in error.str():  # the code may say only that it is fatal
            return ConfigError(
                f"another process has joined the group of consumer {self._consumer} as node {self._node_id}: give each "
                f"process a separate node id; this process ends ({error.str()})"
            )
        return mapped(error, f"take part in the group of consumer {self._consumer}", self._health)

    def _replace_failed(self) -> None:
        """Read on for the buffers that replace failed ones: the client has stopped reading their partitions.

        The group is not involved: what is unassigned is assigned again before the client reports what it owns.
        """
        with suppress(queue.Empty):
            while True:
                buffer = self._replacements.get_nowait()
                number = buffer.partition_id
                known = self._buffers.get(number)
                if known is None or known.generation != buffer.generation:  # the share was lost meanwhile
                    continue
                place = TopicPartition(self._topic, number, buffer.read_to)
                self._client.incremental_unassign([place])
                self._client.incremental_assign([place])
                self._client.resume([place])
                self._paused.discard(number)
                self._buffers[number] = buffer

    def _keep_within_bounds(self) -> None:
        for number, buffer in self._buffers.items():
            place = [TopicPartition(self._topic, number)]
            if number not in self._paused and buffer.is_full:
                self._client.pause(place)
                self._paused.add(number)
            elif number in self._paused and buffer.has_room:
                self._client.resume(place)
                self._paused.discard(number)

    # --- callbacks ----------------------------------------------------------------------------------------------------

    def _on_assign(self, client: Any, partitions: Sequence[TopicPartition]) -> None:
        try:
            self._begin(client, [place.partition for place in partitions])
        except HoldfastError as error:
            self.failure = error
        except KafkaException as error:
            self.failure = mapped(error_of(error), f"begin partitions of {self._topic}", self._health)
        if self.failure is not None:
            _logger.warning("group of consumer %s: joining again: %s", self._consumer, self.failure)
        self._changed()

    def _begin(self, client: Any, numbers: Sequence[int]) -> None:
        home = self._home()
        found = self._positions(client, numbers)
        refusal = self._commit(found)
        if refusal is not None:
            raise mapped(refusal, f"begin partitions of {self._topic}", self._health)
        client.incremental_assign([TopicPartition(self._topic, each, found[each].position) for each in numbers])
        client.resume([TopicPartition(self._topic, each) for each in numbers])
        for number, offset in found.items():
            grant = Grant(Share(self._consumer, self._category, number), offset.generation)
            buffer = PartitionBuffer(home, number, generation=offset.generation, after=offset.position)
            self._buffers[number] = buffer
            self._paused.discard(number)
            self._shares.add(HeldShare(grant, buffer, offset.position))

    def _home(self) -> Home:
        facts = asyncio.run(self._topics.describe(self._topic))  # this thread has no event loop
        if facts is None:
            raise CategoryNotFound(f"topic {self._topic} was deleted")
        return Home(self._category, self._topic, facts.topic_id)

    def _positions(self, client: Any, numbers: Sequence[int]) -> dict[int, CommittedOffset]:
        """Return where to begin, under the next generation; a partition without an offset is new: at its beginning."""
        found: dict[int, CommittedOffset] = {}
        for place in client.committed([TopicPartition(self._topic, number) for number in numbers], _TIMEOUT):
            if place.error is not None:  # an unknown offset is not a missing one, which means the first record
                raise KafkaException(place.error)
            known = CommittedOffset.of(place.offset, place.metadata)
            if known is None:
                first, _ = client.get_watermark_offsets(TopicPartition(self._topic, place.partition), _TIMEOUT)
                known = CommittedOffset(first, 0)
            elif not is_ours(place.metadata):
                _logger.warning(
                    "consumer %s, partition %d: another program has set its offset; generations begin at 1 again",
                    *(self._consumer, place.partition),
                )
            found[place.partition] = known._replace(generation=known.generation + 1)
        return found

    def _on_revoke(self, client: Any, partitions: Sequence[TopicPartition]) -> None:
        shares = self._of(partitions)
        self._shares.revoke(shares, self._drain)
        self._changed()
        until = time.monotonic() + self._drain
        while not (is_released := self._shares.wait_released(shares, _QUICK)) and time.monotonic() < until:
            self._answer_requests()  # the last commits
        if not is_released:
            _logger.warning("consumer %s: %d partitions were not released in time", self._consumer, len(shares))
        self._end(client, partitions)

    def _on_lost(self, client: Any, partitions: Sequence[TopicPartition]) -> None:
        _logger.warning("consumer %s: the group has removed this node, which sent no heartbeat", self._consumer)
        self._end(client, partitions)

    def _end(self, client: Any, partitions: Sequence[TopicPartition]) -> None:
        self._shares.lose(self._of(partitions))
        for place in partitions:
            self._buffers.pop(place.partition, None)
        try:
            client.incremental_unassign(list(partitions))
        except KafkaException as error:
            self.failure = mapped(error_of(error), f"give up partitions of {self._topic}", self._health)
        self._changed()

    def _of(self, partitions: Sequence[TopicPartition]) -> list[Share]:
        return [Share(self._consumer, self._category, place.partition) for place in partitions]


def _refused() -> KafkaError:
    """Return what the broker answers to a member that it does not know."""
    return KafkaError(KafkaError.UNKNOWN_MEMBER_ID)
