"""The share consumers of a node: begun, drained and dropped as the broker commands.

A share has one share consumer at a time. If a share was lost and granted again before its handler has ended, the new
share consumer begins when it has.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from holdfast.model.allocation import Grant, Share
from holdfast.streams.broker import Begin, Broker, Command, Drain, Drop
from holdfast.streams.consumer import Consumer
from holdfast.streams.move_log import PartitionMoves
from holdfast.streams.share_consumer import NodeServices, ShareConsumer

_logger = logging.getLogger("holdfast.streams")
_LAST_WAIT: Final = 1.0  # seconds for cancelled tasks to end


class ShareConsumers:
    """The share consumers of a node; `broken` is called with the reason why the node cannot continue."""

    def __init__(
        self,
        consumers: Mapping[str, Consumer],
        broker: Broker,
        around: NodeServices,
        *,
        stuck_grace: float,
        broken: Callable[[str, BaseException | None], None],
    ) -> None:
        self._consumers = consumers
        self._broker = broker
        self._around = around
        self._stuck_grace = stuck_grace
        self._broken = broken
        self._working: dict[Share, tuple[ShareConsumer, asyncio.Task[None]]] = {}
        self._stuck: set[asyncio.Task[None]] = set()  # did not end within the grace
        self._is_draining = False
        self._is_ending = False
        self._moves = PartitionMoves(around.hooks)

    @property
    def shares(self) -> tuple[Share, ...]:
        """The shares that this node consumes, sorted."""
        return tuple(sorted(self._working))

    def wake(self) -> None:
        """Fetch now: there may be new events."""
        for consumer, _ in self._working.values():
            consumer.wake()

    def interrupt(self) -> None:
        """Interrupt all handlers until it is certain again that this node owns the shares."""
        for consumer, _ in self._working.values():
            consumer.interrupt()

    # --- one share ----------------------------------------------------------------------------------------------------

    def carry_out(self, commands: Sequence[Command]) -> None:
        """Carry out the commands of the broker."""
        for command in commands:
            match command:
                case Begin(grant):
                    self._begin(grant)
                case Drain(grant, within):
                    self._drain(grant, None if within is None else within.total_seconds())
                case Drop(grant):
                    self._drop(grant)
                case _:
                    raise AssertionError(command)

    def _begin(self, grant: Grant) -> None:
        if grant.share in self._working or self._is_ending:
            return
        consumer = ShareConsumer(self._consumers[grant.share.consumer], grant, self._around)
        if self._is_draining:  # granted before the leader knew that this node is leaving
            consumer.drain()
        self._moves.note("granted", grant.share)
        self._working[grant.share] = (consumer, asyncio.create_task(self._consume(consumer)))

    async def _consume(self, consumer: ShareConsumer) -> None:
        share = consumer.grant.share
        try:
            await consumer.run()
        except Exception as error:  # noqa: BLE001 - raised by the node's `run`
            self._broken(f"{consumer!r} failed: {error!r}", error)
        finally:
            del self._working[share]
            if consumer.was_released:
                self._moves.note("released", share)
            elif consumer.was_taken:
                self._moves.note("taken by another node", share)
            self._broker.released(consumer.grant)
            self._around.backend.notifier.notify()
        self.carry_out(self._broker.succeeding(share))

    def _drain(self, grant: Grant, within: float | None) -> None:
        working = self._working.get(grant.share)
        if working is None or working[0].grant != grant:
            return
        consumer, _ = working
        self._moves.note("revoked, finishing the current events", grant.share)
        consumer.drain()
        if within is not None:  # after it the share may be seized; a cancelled handler has the grace before it to end
            grace = self._around.timing.grace.total_seconds()
            asyncio.get_running_loop().call_later(max(0.0, within - grace), consumer.cut_short)

    def _drop(self, grant: Grant) -> None:
        working = self._working.get(grant.share)
        if working is None or working[0].grant != grant:
            return
        consumer, task = working
        self._moves.note("taken by another node", grant.share)
        consumer.drop()
        asyncio.get_running_loop().call_later(self._stuck_grace, self._check_ended, consumer, task)

    def _check_ended(self, consumer: ShareConsumer, task: asyncio.Task[None]) -> None:
        if not task.done():
            self._stuck.add(task)
            self._broken(f"the handler of {consumer!r} did not end after its share was lost", None)

    # --- all shares ---------------------------------------------------------------------------------------------------

    async def drain(self, hurry: asyncio.Event) -> int:
        """End each share consumer with a last commit and release; return how many handlers are stuck.

        At the drain deadline, or when `hurry` is set, the remaining ones are cut short.
        """
        self._is_draining = True
        for consumer, _ in self._working.values():
            consumer.drain()
        limit = self._around.timing.drain
        try:
            async with asyncio.timeout(None if limit is None else limit.total_seconds()):
                await self._until_idle_or(hurry)
        except TimeoutError:
            _logger.debug("the drain deadline has passed")
        for consumer, _ in self._working.values():
            consumer.cut_short()
        if self._working:
            tasks = [task for _, task in self._working.values()]
            _, stuck = await asyncio.wait(tasks, timeout=self._stuck_grace)
            self._stuck |= stuck
        return len(self._stuck)

    async def _until_idle_or(self, hurry: asyncio.Event) -> None:
        hurried = asyncio.create_task(hurry.wait())
        try:
            while self._working and not hurried.done():
                tasks = [task for _, task in self._working.values()]
                await asyncio.wait([hurried, *tasks], return_when=asyncio.FIRST_COMPLETED)
        finally:
            hurried.cancel()

    async def end(self) -> bool:
        """Drop all shares and begin no more; False if a handler may still run.

        Each handler has the grace to end, unless it has already had it: a cancelled task ends before its thread does.
        """
        self._is_ending = True
        tasks = {task for _, task in self._working.values()}
        for consumer, _ in self._working.values():
            consumer.drop()
        try:
            if tasks - self._stuck:
                await asyncio.wait(tasks - self._stuck, timeout=self._stuck_grace)
            left = {task for task in tasks if not task.done()}
        finally:
            for task in tasks:
                task.cancel()
        if left:
            _logger.warning("the node ends, but %d of its handlers still run", len(left))
            await asyncio.wait(left, timeout=_LAST_WAIT)
        self._moves.flush()
        return not left
