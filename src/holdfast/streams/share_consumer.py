"""The consumer of one share: fetch, handle, commit, until it is drained or dropped.

One task consumes a share, event after event or batch after batch, in order. Nothing is fetched or handled unless the
broker is certain that no other node owns the share yet.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta
from typing import Final, TypeVar

from holdfast.errors import ConfigError, EventsGone, LeaseLost, NotFound, OutcomeUnknown, StoreError, StoreUnavailable
from holdfast.hooks.observers import Hooks
from holdfast.model.allocation import Grant, Timing
from holdfast.model.event import StoredEvent
from holdfast.runtime.handler_runner import HandlerRunner
from holdfast.runtime.uptime import uptime
from holdfast.store.backend import Backend
from holdfast.store.stream_values import Commit, CommitVerdict, Fetched, ParkedEvent
from holdfast.streams.consumer import Consumer
from holdfast.streams.effect import StreamUnparked
from holdfast.streams.event_retry import fails_for_good, goes_alone, has_killed, lost_nodes, writes_trial
from holdfast.streams.event_runner import EventRunner, ParkedRetry
from holdfast.streams.handler_process import HandlerProcesses
from holdfast.streams.handling import OwnershipUncertain, Stopped
from holdfast.streams.progress import ShareProgress

_logger = logging.getLogger("holdfast.streams")
T = TypeVar("T")
_STORE_WAIT: Final = 0.1  # seconds before a store call is repeated; doubled up to
_STORE_WAIT_MOST: Final = 2.0


class NodeServices:
    """The services that the share consumers of a node have in common."""

    def __init__(
        self,
        backend: Backend,
        timing: Timing,
        may_handle: Callable[[Grant], bool],
        processes: HandlerProcesses | None,
        hooks: Hooks,
    ) -> None:
        self.backend = backend
        self.hooks = hooks
        self.processes = processes
        self.timing = timing
        self.may_handle = may_handle
        self.handlers = HandlerRunner[Grant]("holdfast-consumer", clock=uptime)
        self.handled = 0
        """The number of events that were handled, skipped or parked."""
        self.trial = asyncio.Lock()
        """Held while an event is on trial: its handler may kill this process."""


class ShareConsumer:
    """Consumes one share under one grant."""

    def __init__(self, consumer: Consumer, grant: Grant, around: NodeServices) -> None:
        self.grant = grant
        self.consumer = consumer
        self._around = around
        self._store = around.backend.streams.consumers
        self._stop = asyncio.Event()
        self._wake = asyncio.Event()
        self._is_dropped = False
        self._is_stopped = False
        self.was_released = self.was_taken = False
        """How the share ended, for the log: released here, or found to be owned by another node."""
        self._handling = EventRunner(
            consumer,
            grant,
            around.backend,
            handlers=around.handlers,
            limit=self._limit(),
            may_handle=self._may_handle,
            processes=around.processes,
            hooks=around.hooks,
        )
        self._progress = ShareProgress(0, by_version=self._by_version, commit_every=consumer.commit_every)
        self._flushed = time.monotonic()
        batches = around.backend.capabilities.batches_at_once if consumer.takes_batch else 1
        self._fetches = batches * consumer.batch

    def __repr__(self) -> str:
        """Show the share and its generation."""
        share = self.grant.share
        return f"<ShareConsumer {share.consumer} of {share.category}:{share.partition_id}, {self.grant.generation}>"

    def _may_handle(self) -> bool:
        return self._around.may_handle(self.grant)

    @property
    def _by_version(self) -> bool:
        return self.consumer.subscription.stream is not None

    def _limit(self) -> timedelta:
        """Return the time limit of a handler's transaction: it must end before another node can be granted the share.

        On a store with one writer it delays the heartbeats of this node, so it must leave time for them.
        """
        timing = self._around.timing
        one_writer = self._around.backend.capabilities.one_writer
        return timing.self_fence - 2 * timing.heartbeat_every if one_writer else timing.self_fence

    # --- control ------------------------------------------------------------------------------------------------------

    def wake(self) -> None:
        """Fetch now: there may be new events."""
        self._wake.set()

    def drain(self) -> None:
        """Finish the current event or batch, commit, release and end."""
        self._stop.set()
        self._wake.set()

    def cut_short(self) -> None:
        """End now, since the drain deadline has passed: an async handler is cancelled, the share is released."""
        self.drain()
        self._handling.abandon()

    def interrupt(self) -> None:
        """Interrupt the handler; nothing more is handled until it is certain again that this node owns the share."""
        self._handling.interrupt()

    def drop(self) -> None:
        """End now: the grant is stale. An async handler is cancelled, and nothing more is written."""
        self._is_dropped = True
        self.cut_short()

    # --- the loop -----------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Consume until drained or dropped; release the share unless it was dropped."""
        try:
            await self._run()
        finally:
            if self.consumer.ended is not None:
                self.consumer.ended(self.grant.share.partition_id, self.grant.generation)

    async def _run(self) -> None:
        try:
            with contextlib.suppress(Stopped):
                await self._consume()
            if not self._is_dropped:
                await self._flush()
        except LeaseLost:
            self.was_taken = not self._is_dropped
            return
        except (StoreError, StreamUnparked) as error:
            _logger.warning("%r ended without its last commit, some events may be handled again: %r", self, error)
        if not self._is_dropped:
            with contextlib.suppress(StoreError):  # the leader seizes it when this node has left or is silent
                self.was_released = await self._store.release(self.grant)

    async def _consume(self) -> None:
        await self._begin_again()
        while not self._stop.is_set():
            if not self._may_handle():
                await self._rest(self._around.timing.heartbeat_every.total_seconds())
                continue
            self._wake.clear()  # before the fetch: a later append sets it again
            try:
                fetched = await self._until_answered(self._fetch, ends_with_stop=True)
            except (EventsGone, ConfigError, NotFound) as error:
                await self._report_stopped(error)
                continue
            self._is_stopped = False
            if fetched.is_lost:
                raise LeaseLost
            if not await self._work_or_begin_again(fetched):
                await self._idle()

    async def _report_stopped(self, error: Exception) -> None:
        """Log, once, that the share cannot continue until an operator acts; the other shares of the node do."""
        if not self._is_stopped:
            _logger.error("%r is stopped: %s", self, error)
        self._is_stopped = True
        await self._rest(_STORE_WAIT_MOST)

    async def _begin_again(self) -> None:
        """Continue after the committed position."""
        position = await self._until_answered(lambda: self._store.verify(self.grant))
        if position is None:
            raise LeaseLost
        self._progress.back_to(position)

    async def _fetch(self) -> Fetched:
        return await self._store.fetch(self.grant, after=self._progress.done, limit=self._fetches)

    async def _work_or_begin_again(self, fetched: Fetched) -> bool:
        """Handle the fetched events; True if there were any."""
        try:
            return await self._work(fetched)
        except StreamUnparked:
            await self._begin_again()
        except OwnershipUncertain:
            _logger.warning("%r: this node may have lost the share, so its handler was interrupted", self)
            await self._flush()  # fenced, so it is safe; committed events are not handled again
            await self._begin_again()
        except (StoreUnavailable, OutcomeUnknown) as error:
            _logger.warning("%r: the store failed, continuing after the committed position: %s", self, error)
            await self._rest(_STORE_WAIT)
            await self._begin_again()
        return True

    async def _work(self, fetched: Fetched) -> bool:
        self._progress.parked |= fetched.parked_streams
        if fetched.retries:
            await self._retry(fetched.retries, fetched.losses)
            return True  # the next fetch returns the streams that are still parked
        if fetched.events and goes_alone(fetched.losses):
            await self._work_alone(fetched.events[0], fetched)
            return True
        for batch in self._batches(fetched.events):
            if self._stop.is_set() or not self._may_handle():
                break
            await self._handling.handle(batch, self._progress, fetched.replay_until, self._rest)
            self._around.handled += len(batch)
            if self._progress.is_due or self._is_flush_time():
                await self._flush()
        if not fetched.events:
            self._progress.passed_to(fetched.passed)
            await self._flush()
        return bool(fetched.events)

    async def _work_alone(self, event: StoredEvent, fetched: Fetched) -> None:
        """Handle one event by itself, so that the store knows the event if this process dies."""
        await self._flush()
        if fails_for_good(self.consumer, fetched.losses):
            self._handling.give_up(event, self._progress, lost_nodes(fetched.losses), attempts=fetched.losses)
        elif not writes_trial(self.consumer):
            await self._handling.handle([event], self._progress, fetched.replay_until, self._rest)
        elif await self._gets_its_turn():
            try:
                await self._note_trial()
                await self._handling.handle([event], self._progress, fetched.replay_until, self._rest)
                await self._flush()
            finally:
                self._around.trial.release()
        await self._flush()

    async def _note_trial(self) -> None:
        """Record in the store that the next event is on trial."""
        trial = self._progress.commit_trial()
        self._require(await self._until_answered(lambda: self._commit(trial)))

    async def _gets_its_turn(self) -> bool:
        """Wait until no other event is on trial in this process; False if the share consumer is to end first."""
        turn = asyncio.ensure_future(self._around.trial.acquire())
        end = asyncio.ensure_future(self._stop.wait())
        try:
            await asyncio.wait([turn, end], return_when=asyncio.FIRST_COMPLETED)
            return turn.done()
        finally:
            end.cancel()
            turn.cancel()

    async def _retry(self, retries: Sequence[ParkedEvent], losses: int) -> None:
        """Handle parked events again, in order; after one that fails the later ones of its stream stay parked."""
        failed: set[str] = set()
        for parked in retries:
            if self._stop.is_set():
                return
            if parked.event.stream in failed:
                continue
            retried = await (self._retry_alone(parked, losses) if goes_alone(losses) else self._retry_one(parked))
            if retried is None:
                return
            losses = 0  # the losses concerned the first event alone
            if retried.commit.unparks[0].failure is not None:
                failed.add(parked.event.stream)
        self._progress.parked.clear()

    async def _retry_one(self, parked: ParkedEvent) -> ParkedRetry:
        retried = await self._handling.retry(parked, self._progress)
        if not retried.is_committed:
            self._require(await self._until_answered(lambda: self._commit(retried.commit)))
        self._progress.committed_to(retried.commit.position)
        return retried

    async def _retry_alone(self, parked: ParkedEvent, losses: int) -> ParkedRetry | None:
        """Handle a parked event again, on trial; None if the share consumer is to end first."""
        if has_killed(losses):
            commit = self._progress.commit_unparked(self._progress.place(parked.event), lost_nodes(losses), 1)
            self._require(await self._until_answered(lambda: self._commit(commit)))
            return ParkedRetry(commit, is_committed=True)
        if not await self._gets_its_turn():
            return None
        try:
            await self._note_trial()
            return await self._retry_one(parked)
        finally:
            self._around.trial.release()

    def _batches(self, events: list[StoredEvent]) -> list[list[StoredEvent]]:
        """Return the batches to handle; past the first only whole ones: the next fetch returns the rest, with more.

        Else most fetches would end with a smaller batch, which is not committed alone if `commit_every` is the size.
        """
        size = self.consumer.batch if self.consumer.takes_batch else 1
        last = max(size, len(events) - len(events) % size)
        return [events[start : start + size] for start in range(0, min(last, len(events)), size)]

    # --- committing ---------------------------------------------------------------------------------------------------

    def _is_flush_time(self) -> bool:
        return time.monotonic() - self._flushed >= self.consumer.commit_interval.total_seconds()

    async def _flush(self) -> None:
        """Commit the events that are done; raises `LeaseLost`."""
        self._flushed = time.monotonic()
        if not self._progress.is_ahead:
            return
        commit = self._progress.commit_done()
        self._require(await self._until_answered(lambda: self._commit(commit)))
        self._progress.committed_to(commit.position)

    async def _commit(self, commit: Commit) -> CommitVerdict:
        return await self._store.commit(self.grant, commit)

    @staticmethod
    def _require(verdict: CommitVerdict) -> None:
        if verdict is CommitVerdict.LOST:
            raise LeaseLost
        if verdict is CommitVerdict.UNPARKED:
            raise StreamUnparked

    # --- waiting ------------------------------------------------------------------------------------------------------

    async def _until_answered(self, call: Callable[[], Awaitable[T]], *, ends_with_stop: bool = False) -> T:
        """Call the store until it answers; every verb is safe to repeat. Raises after a drop.

        `ends_with_stop` is for a call that nothing depends on once the share consumer is to end.
        """
        wait = _STORE_WAIT
        while True:
            try:
                return await call()
            except (StoreUnavailable, OutcomeUnknown) as error:
                if self._is_dropped or (self._stop.is_set() and not self._may_handle()):
                    raise
                _logger.warning("%r: a store call failed, retrying: %s", self, error)
                if await (self._rest(wait) if ends_with_stop else asyncio.sleep(wait, False)):
                    raise Stopped from error
                wait = min(wait * 2, _STORE_WAIT_MOST)

    async def _idle(self) -> None:
        """Wait for a notification of events, for the poll interval at most."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self.consumer.poll_interval.total_seconds()):
                await self._wake.wait()

    async def _rest(self, seconds: float) -> bool:
        """Wait, or return early with True if the share consumer is to end."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._stop.wait()
        return self._stop.is_set()
