"""A backend wrapper for streams that records commits, joins, leadership and the leader's writes."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Generator, Sequence
from contextlib import asynccontextmanager, contextmanager
from datetime import timedelta
from typing import Any, cast

from holdfast.errors import OutcomeUnknown, StoreUnavailable
from holdfast.model.allocation import Grant, Leadership, Move, NodeKey
from holdfast.model.isolation import READ_COMMITTED, Isolation
from holdfast.store.allocations import AllocationStore
from holdfast.store.backend import Backend
from holdfast.store.consumers import ConsumerStore, StreamTransaction
from holdfast.store.stream_values import Commit, CommitVerdict, NewNode
from holdfast.store.streams import Streams
from holdfast.torture.history import now_us
from holdfast.torture.recorder import Recorder
from holdfast.torture.recording_backend import RecordingBackend
from holdfast.torture.recording_transactions import UNAVAILABLE, UNKNOWN
from holdfast.torture.streams.records import Joined, LeaderWrote, Led, PositionCommitted


class RecordingStreamBackend(RecordingBackend):
    """A `Backend` around another, for nodes."""

    def __init__(self, inner: Backend, recorder: Recorder) -> None:
        super().__init__(inner, recorder)
        self._led = KnownLeadership()

    @property
    def streams(self) -> Streams:
        """The inner backend's streams, recorded."""
        return cast("Streams", RecordingStreams(self._inner.streams, self._recorder, self._led))


class KnownLeadership:
    """The leadership that this process knows of."""

    leadership: Leadership | None = None


class RecordingStreams:
    """Calls that are not recorded pass through."""

    def __init__(self, inner: Streams, recorder: Recorder, led: KnownLeadership) -> None:
        self._inner = inner
        self.consumers = RecordingConsumers(inner.consumers, recorder)
        self.allocations = RecordingAllocations(inner.allocations, recorder, led)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


class RecordingConsumers:
    """Commits, alone or in a handler's transaction."""

    def __init__(self, inner: ConsumerStore, recorder: Recorder) -> None:
        self._inner = inner
        self._recorder = recorder

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    async def commit(self, grant: Grant, commit: Commit) -> CommitVerdict:
        """Commit, and record the verdict."""
        sent_us = now_us()
        try:
            verdict = await self._inner.commit(grant, commit)
        except (StoreUnavailable, OutcomeUnknown) as error:
            failed = UNAVAILABLE if isinstance(error, StoreUnavailable) else UNKNOWN
            self._committed(grant, commit, failed, sent_us)
            raise
        self._committed(grant, commit, str(verdict), sent_us)
        return verdict

    @asynccontextmanager
    async def begin(
        self, grant: Grant, *, limit: timedelta, isolation: Isolation = READ_COMMITTED
    ) -> AsyncGenerator[StreamTransaction]:
        """Open a transaction, and record the commit of its position."""
        noted = RecordingStreamTransaction()
        with self._recorded(grant, noted):
            async with self._inner.begin(grant, limit=limit, isolation=isolation) as transaction:
                noted.transaction = transaction
                yield noted

    @contextmanager
    def begin_blocking(
        self, grant: Grant, *, limit: timedelta, isolation: Isolation = READ_COMMITTED
    ) -> Generator[StreamTransaction]:
        """The same for a handler in a thread."""
        noted = RecordingStreamTransaction()
        opening = self._inner.begin_blocking(grant, limit=limit, isolation=isolation)
        with self._recorded(grant, noted), opening as transaction:
            noted.transaction = transaction
            yield noted

    @contextmanager
    def _recorded(self, grant: Grant, noted: RecordingStreamTransaction) -> Generator[None]:
        sent_us = now_us()
        try:
            yield
        except OutcomeUnknown:
            if noted.asked is not None:
                self._committed(grant, noted.asked, UNKNOWN, sent_us, effect=True)
            raise
        if noted.asked is not None:
            self._committed(grant, noted.asked, str(CommitVerdict.DONE), sent_us, effect=True)

    def _committed(self, grant: Grant, commit: Commit, verdict: str, sent_us: int, *, effect: bool = False) -> None:
        share = grant.share
        record = PositionCommitted(
            at_us=now_us(),
            consumer=share.consumer,
            category=share.category,
            partition=share.partition_id,
            generation=grant.generation,
            after=commit.after,
            position=commit.position,
            verdict=verdict,
            sent_us=sent_us,
            effect=effect,
        )
        self._recorder.write(record)


class RecordingStreamTransaction:
    """A handler's transaction that knows what it is to commit."""

    def __init__(self) -> None:
        self.transaction: StreamTransaction | None = None
        self.asked: Commit | None = None

    @property
    def connection(self) -> Any:
        """The connection for the handler's writes."""
        return self._open.connection

    @property
    def concerns_children(self) -> bool:
        """Whether jobs with children have ended in it."""
        return self._open.concerns_children

    def commit(self, grant: Grant, commit: Commit) -> Any:
        """Keep what is to be committed, and pass it on."""
        self.asked = commit
        return self._open.commit(grant, commit)

    @property
    def _open(self) -> StreamTransaction:
        if self.transaction is None:
            raise AssertionError
        return self.transaction


class RecordingAllocations:
    """Joins; leadership, and writes under it."""

    def __init__(self, inner: AllocationStore, recorder: Recorder, led: KnownLeadership) -> None:
        self._inner = inner
        self._recorder = recorder
        self._led = led

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    async def join(self, node: NewNode) -> None:
        """Join, and record the identity."""
        await self._inner.join(node)
        self._recorder.write(Joined(at_us=now_us(), node=node.node.node_id))

    async def lead(self, node: NodeKey, lease: timedelta) -> Leadership | None:
        """Lead, and record an epoch that is new to this process."""
        sent_us = now_us()
        leadership = await self._inner.lead(node, lease)
        if leadership is not None and leadership != self._led.leadership:
            self._recorder.write(
                Led(
                    at_us=now_us(),
                    node=leadership.node.node_id,
                    incarnation=leadership.node.incarnation,
                    epoch=leadership.epoch,
                    sent_us=sent_us,
                )
            )
        self._led.leadership = leadership
        return leadership

    async def move_shares(
        self, leadership: Leadership, moves: Sequence[Move], *, grace: timedelta
    ) -> list[bool] | None:
        """Carry out moves, and record that some took effect."""
        sent_us = now_us()
        done = await self._inner.move_shares(leadership, moves, grace=grace)
        if done is not None and any(done):
            count = sum(done)
            self._recorder.write(LeaderWrote(at_us=now_us(), epoch=leadership.epoch, moves=count, sent_us=sent_us))
        return done
