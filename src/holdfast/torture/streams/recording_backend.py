"""Stands beside the port for streams and writes down commits, who takes part, leadership and the leader's writes."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Generator, Sequence
from contextlib import asynccontextmanager, contextmanager
from datetime import timedelta
from typing import Any, cast

from holdfast.errors import OutcomeUnknown, StoreUnavailable
from holdfast.model.allocation import Grant, Leadership, Move, NodeKey
from holdfast.store.allocations import AllocationStore
from holdfast.store.backend import Backend
from holdfast.store.consumers import ConsumerStore, StreamTransaction
from holdfast.store.stream_values import Commit, CommitVerdict, NewNode
from holdfast.store.streams import Streams
from holdfast.torture.history import now_us
from holdfast.torture.recorder import Recorder
from holdfast.torture.recording_backend import UNAVAILABLE, UNKNOWN, Beside
from holdfast.torture.streams.records import Joined, LeaderWrote, Led, PositionCommitted


class StreamBackendBeside(Beside):
    """A `Backend` around another, for nodes."""

    def __init__(self, inner: Backend, recorder: Recorder) -> None:
        super().__init__(inner, recorder)
        self._led = LedBefore()

    @property
    def streams(self) -> Streams:
        """The inner backend's, written down."""
        return cast("Streams", StreamsBeside(self._inner.streams, self._recorder, self._led))


class LedBefore:
    """The leadership that this process knows of."""

    leadership: Leadership | None = None


class StreamsBeside:
    """What is not written down goes straight through."""

    def __init__(self, inner: Streams, recorder: Recorder, led: LedBefore) -> None:
        self._inner = inner
        self.consumers = ConsumersBeside(inner.consumers, recorder)
        self.allocations = AllocationsBeside(inner.allocations, recorder, led)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


class ConsumersBeside:
    """Commits, alone or in a handler's transaction."""

    def __init__(self, inner: ConsumerStore, recorder: Recorder) -> None:
        self._inner = inner
        self._recorder = recorder

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    async def commit(self, grant: Grant, commit: Commit) -> CommitVerdict:
        """Commit, and write down the verdict."""
        sent_us = now_us()
        try:
            verdict = await self._inner.commit(grant, commit)
        except (StoreUnavailable, OutcomeUnknown) as error:
            told = UNAVAILABLE if isinstance(error, StoreUnavailable) else UNKNOWN
            self._committed(grant, commit, told, sent_us)
            raise
        self._committed(grant, commit, str(verdict), sent_us)
        return verdict

    @asynccontextmanager
    async def begin(self, grant: Grant, *, limit: timedelta) -> AsyncGenerator[StreamTransaction]:
        """Open a transaction, and write down that its position was committed."""
        noted = NotedTransaction()
        with self._written_down(grant, noted):
            async with self._inner.begin(grant, limit=limit) as transaction:
                noted.transaction = transaction
                yield noted

    @contextmanager
    def begin_blocking(self, grant: Grant, *, limit: timedelta) -> Generator[StreamTransaction]:
        """The same for a handler in a thread."""
        noted = NotedTransaction()
        with self._written_down(grant, noted), self._inner.begin_blocking(grant, limit=limit) as transaction:
            noted.transaction = transaction
            yield noted

    @contextmanager
    def _written_down(self, grant: Grant, noted: NotedTransaction) -> Generator[None]:
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


class NotedTransaction:
    """A handler's transaction that knows what it was to commit."""

    def __init__(self) -> None:
        self.transaction: StreamTransaction | None = None
        self.asked: Commit | None = None

    @property
    def connection(self) -> Any:
        """What the handler writes through."""
        return self._open.connection

    def commit(self, grant: Grant, commit: Commit) -> Any:
        """Note what is to be committed, and pass it on."""
        self.asked = commit
        return self._open.commit(grant, commit)

    @property
    def _open(self) -> StreamTransaction:
        if self.transaction is None:
            raise AssertionError
        return self.transaction


class AllocationsBeside:
    """Who takes part; leadership, and what is written under it."""

    def __init__(self, inner: AllocationStore, recorder: Recorder, led: LedBefore) -> None:
        self._inner = inner
        self._recorder = recorder
        self._led = led

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    async def join(self, node: NewNode) -> None:
        """Join, and write down as whom."""
        await self._inner.join(node)
        self._recorder.write(Joined(at_us=now_us(), node=node.node.node_id))

    async def lead(self, node: NodeKey, lease: timedelta) -> Leadership | None:
        """Lead, and write down an epoch that is new here."""
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
        """Allot, and write down that moves took effect."""
        sent_us = now_us()
        done = await self._inner.move_shares(leadership, moves, grace=grace)
        if done is not None and any(done):
            count = sum(done)
            self._recorder.write(LeaderWrote(at_us=now_us(), epoch=leadership.epoch, moves=count, sent_us=sent_us))
        return done
