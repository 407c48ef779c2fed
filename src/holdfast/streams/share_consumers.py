"""What a node has in hand: the consumption of each share that it holds, begun, drained and dropped as the broker says.

Of one share there is one consumption at a time. A share that was taken away and granted anew while its handler has not
ended yet is begun when it has: the broker knows of it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from holdfast.model.allocation import Grant, Share
from holdfast.streams.broker import Begin, Broker, Command, Drain, Drop
from holdfast.streams.consumer import Consumer
from holdfast.streams.share_consumer import NodeServices, ShareConsumer

_logger = logging.getLogger("holdfast.streams")
_LAST_WAIT: Final = 1.0  # seconds for what was cancelled after all to end in


class ShareConsumers:
    """The consumptions of a node; `broken` is told why it cannot go on."""

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
        self._stuck: set[asyncio.Task[None]] = set()  # they had the grace to end in
        self._is_draining = False
        self._is_ending = False

    @property
    def shares(self) -> tuple[Share, ...]:
        """The shares that are being consumed, in order."""
        return tuple(sorted(self._working))

    def wake(self) -> None:
        """Look for events now: there may be some."""
        for consumption, _ in self._working.values():
            consumption.wake()

    def interrupt(self) -> None:
        """Break off what is being handled until it is sure again that the shares are ours."""
        for consumption, _ in self._working.values():
            consumption.interrupt()

    # --- one share ----------------------------------------------------------------------------------------------------

    def carry_out(self, commands: Sequence[Command]) -> None:
        """Do what the broker says."""
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
        consumption = ShareConsumer(self._consumers[grant.share.consumer], grant, self._around)
        if self._is_draining:  # granted before the leader learned that we are about to leave
            consumption.drain()
        self._working[grant.share] = (consumption, asyncio.create_task(self._consume(consumption)))

    async def _consume(self, consumption: ShareConsumer) -> None:
        share = consumption.grant.share
        try:
            await consumption.run()
        except Exception as error:  # noqa: BLE001 - reported to whoever waits for the node
            self._broken(f"{consumption!r} failed: {error!r}", error)
        finally:
            del self._working[share]
            self._broker.released(consumption.grant)
            self._around.backend.notifier.notify()
        self.carry_out(self._broker.succeeding(share))

    def _drain(self, grant: Grant, within: float | None) -> None:
        working = self._working.get(grant.share)
        if working is None or working[0].grant != grant:
            return
        consumption, _ = working
        consumption.drain()
        if within is not None:  # that is when it may be seized; the grace before is for what is cut short to end in
            grace = self._around.timing.grace.total_seconds()
            asyncio.get_running_loop().call_later(max(0.0, within - grace), consumption.cut_short)

    def _drop(self, grant: Grant) -> None:
        working = self._working.get(grant.share)
        if working is None or working[0].grant != grant:
            return
        consumption, task = working
        consumption.drop()
        asyncio.get_running_loop().call_later(self._stuck_grace, self._check_ended, consumption, task)

    def _check_ended(self, consumption: ShareConsumer, task: asyncio.Task[None]) -> None:
        if not task.done():
            self._stuck.add(task)
            self._broken(f"the handler of {consumption!r} does not end though its share was taken away", None)

    # --- all of them --------------------------------------------------------------------------------------------------

    async def drain(self, hurry: asyncio.Event) -> int:
        """End each consumption with its last commit and release; return how many handlers are stuck.

        What takes longer than the time to drain, or than until the call to hurry, is cut short.
        """
        self._is_draining = True
        for consumption, _ in self._working.values():
            consumption.drain()
        limit = self._around.timing.drain
        try:
            async with asyncio.timeout(None if limit is None else limit.total_seconds()):
                await self._until_idle_or(hurry)
        except TimeoutError:
            _logger.debug("the time to drain is up")
        for consumption, _ in self._working.values():
            consumption.cut_short()
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
        """Drop everything and begin nothing more; False if a handler may still be at work, though nobody waits for it.

        Each has the grace to end in that it has not had yet: a task that is cancelled at once ends before its thread.
        """
        self._is_ending = True
        tasks = {task for _, task in self._working.values()}
        for consumption, _ in self._working.values():
            consumption.drop()
        try:
            if tasks - self._stuck:
                await asyncio.wait(tasks - self._stuck, timeout=self._stuck_grace)
            left = {task for task in tasks if not task.done()}
        finally:
            for task in tasks:
                task.cancel()
        if left:
            _logger.warning("the node ends, and %d of its handlers do not", len(left))
            await asyncio.wait(left, timeout=_LAST_WAIT)
        return not left
