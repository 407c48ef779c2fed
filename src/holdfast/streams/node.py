"""A node: a process that takes part in allocation and consumes what it is allotted.

Three things go on beside one another: the report (that we live; the answer says what is ours), the pass of the leader
(only one of the nodes gets to do it), and one consumption for each share that we hold. The decisions are the broker's
and the allocator's; here are the hands.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
import time
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Final, TypeVar
from uuid import uuid4

import msgspec

from holdfast.errors import ConfigError, HoldfastError, StoreError
from holdfast.model.allocation import Grant, NodeKey, Share, Timing
from holdfast.model.names import check_name
from holdfast.store.allocations import AllocationStore
from holdfast.store.backend import Backend
from holdfast.store.stream_values import Member, NewNode
from holdfast.streams.broker import Begin, Broker, Command, Drain, Drop
from holdfast.streams.consumer import Consumer
from holdfast.streams.consumption import Consumption, Surroundings
from holdfast.streams.leader import Leader

_logger = logging.getLogger("holdfast.streams")
T = TypeVar("T")
_HINTED_BEAT: Final = 0.2  # seconds between two reports that hints have brought forward
_STORE_WAIT: Final = 0.5
_FAREWELL: Final = 5.0  # seconds for telling the store that we leave; it finds out by our silence, too


class NodeBroken(HoldfastError):  # noqa: N818
    """The node cannot go on, and its process is to end: a handler is stuck, its name is taken, its own loop failed."""


class NodeStatus(msgspec.Struct, frozen=True):
    """What a node is doing."""

    node: NodeKey
    is_running: bool
    is_leader: bool
    shares: tuple[Share, ...]


class Node:
    """Consumes for the consumers of an app until it is stopped."""

    def __init__(
        self,
        backend: Backend,
        consumers: Sequence[Consumer],
        *,
        node_id: str | None = None,
        timing: Timing | None = None,
        stuck_grace: float = 10.0,
    ) -> None:
        if not consumers:
            message = "this node has no consumer, so it would be allotted nothing: register some with @app.consumer"
            raise ConfigError(message)
        self.timing = _checked(timing or Timing())
        self.node = NodeKey(check_name("node", node_id or f"node-{socket.gethostname()}-{os.getpid()}"), uuid4().hex)
        self._backend = backend
        self._consumers = {consumer.name: consumer for consumer in consumers}
        self._stuck_grace = stuck_grace
        self._broker = Broker(self.timing)
        self._working: dict[Share, tuple[Consumption, asyncio.Task[None]]] = {}
        self._waiting: dict[Share, Grant] = {}  # granted anew while the former consumption is still ending
        self._leader = Leader(backend, self.node, self.timing)
        self._hint = asyncio.Event()
        self._stop = asyncio.Event()
        self._hurry = asyncio.Event()
        self._is_running = False
        self._broken: asyncio.Future[None] | None = None

    @property
    def _store(self) -> AllocationStore:
        return self._backend.streams.allocations

    def status(self) -> NodeStatus:
        """Tell what the node is doing."""
        shares = tuple(sorted(self._working))
        return NodeStatus(self.node, self._is_running, self._leader.is_leading, shares)

    def stop(self) -> None:
        """End: finish what is being handled, release the shares, leave. Asked again: do not wait for handlers."""
        if self._stop.is_set():
            self._hurry.set()
        self._stop.set()
        self._hint.set()

    # --- the life of the node -----------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Take part until stopped; raises `NodeBroken` if it cannot go on."""
        await self._backend.open()
        loop = asyncio.get_running_loop()
        self._broken = loop.create_future()
        self._around = Surroundings(self._backend, self.timing, self._may_dispatch)
        self._is_running = True

        def hinted() -> None:  # called from any thread
            loop.call_soon_threadsafe(self._hinted)

        unlisten = self._backend.notifier.listen(hinted)
        try:
            await self._enter()
            await self._take_part()
        finally:
            unlisten()
            self._is_running = False
            await self._depart()
            self._around.threads.close()

    async def _enter(self) -> None:
        for consumer in self._consumers.values():
            await self._patiently(partial(self._subscribe, consumer))
        await self._patiently(lambda: self._store.join(self._described()))
        _logger.info("node %s takes part, for %s", self.node.node_id, ", ".join(sorted(self._consumers)))

    async def _subscribe(self, consumer: Consumer) -> None:
        await self._backend.streams.consumers.subscribe(consumer.name, consumer.subscription, consumer.start)

    def _described(self) -> NewNode:
        members = tuple(Member(consumer.name, consumer.capacity) for consumer in self._consumers.values())
        return NewNode(self.node, socket.gethostname(), os.getpid(), members, self.timing)

    async def _take_part(self) -> None:
        assert self._broken is not None  # noqa: S101 - set by `run`
        parts: list[asyncio.Future[None]] = [
            asyncio.create_task(self._report()),
            asyncio.create_task(self._fence_itself()),
            asyncio.create_task(self._leader.run()),
            asyncio.create_task(self._drain()),
            self._broken,
        ]
        try:
            done, _ = await asyncio.wait(parts, return_when=asyncio.FIRST_COMPLETED)
            for ended in done:
                _raise_failure(ended)
        finally:
            for part in parts:
                part.cancel()
            await asyncio.gather(*parts, return_exceptions=True)

    async def _drain(self) -> None:
        """Once stopped, end the consumptions, each with its last commit and release, while reports go on."""
        await self._stop.wait()
        with contextlib.suppress(StoreError, TimeoutError):  # then the leader will notice that we have gone
            async with asyncio.timeout(_FAREWELL):
                await self._store.drain(self.node)
        for consumption, _ in self._working.values():
            consumption.drain()
        limit = None if self.timing.drain is None else self.timing.drain.total_seconds()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(limit):
                await self._until_idle_or_hurried()
        for consumption, _ in self._working.values():
            consumption.cut_short()
        if self._working:
            tasks = [task for _, task in self._working.values()]
            _, stuck = await asyncio.wait(tasks, timeout=self._stuck_grace)
            if stuck:
                raise NodeBroken(f"{len(stuck)} handlers do not end though they were asked to and told to")

    async def _until_idle_or_hurried(self) -> None:
        hurry = asyncio.create_task(self._hurry.wait())
        try:
            while self._working and not hurry.done():
                tasks = [task for _, task in self._working.values()]
                await asyncio.wait([hurry, *tasks], return_when=asyncio.FIRST_COMPLETED)
        finally:
            hurry.cancel()

    async def _depart(self) -> None:
        """Let go of everything; what cannot be said to the store it will find out by our silence."""
        for consumption, task in self._working.values():
            consumption.drop()
            task.cancel()
        with contextlib.suppress(StoreError, TimeoutError):
            async with asyncio.timeout(_FAREWELL):
                await self._leader.resign()
                await self._store.leave(self.node)
            self._backend.notifier.notify()

    # --- reporting ----------------------------------------------------------------------------------------------------

    def _may_dispatch(self) -> bool:
        return self._broker.may_dispatch(time.monotonic())

    def _hinted(self) -> None:
        self._hint.set()
        for consumption, _ in self._working.values():
            consumption.wake()

    async def _report(self) -> None:
        """Report that we live, take in what is ours, again and again."""
        while True:
            self._hint.clear()  # before the report: what changes after it brings the next one forward
            sent = time.monotonic()
            wait = self.timing.beat.total_seconds()
            try:
                beat = await self._store.beat(self.node, self.timing)
                if beat.is_known:
                    self._carry_out(self._broker.answered(beat, sent=sent))
                else:
                    await self._enter_again()
                    continue
            except StoreError as error:
                _logger.warning("node %s cannot report to the store: %s", self.node.node_id, error)
                wait = min(wait, _STORE_WAIT)
            await asyncio.sleep(min(_HINTED_BEAT, wait))
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._hint.wait(), max(0.0, wait - _HINTED_BEAT))

    async def _fence_itself(self) -> None:
        """Interrupt what is being handled whenever our reports have failed for so long that others may take over.

        If this loop stood still meanwhile, by a handler that blocks it or with the whole process, no report has failed:
        none was sent. The next one, which is under way now, tells what is still ours.
        """
        beat = self.timing.beat.total_seconds()
        while True:
            begun = time.monotonic()
            wait = self._broker.sure_for(begun) or beat
            await asyncio.sleep(wait)
            now = time.monotonic()
            if now - begun < wait + beat and not self._broker.sure_for(now):
                for consumption, _ in self._working.values():
                    consumption.interrupt()

    async def _enter_again(self) -> None:
        """Join again after the store has forgotten us; but not where another process has taken our name."""
        self._carry_out(self._broker.drop_all())
        for view in await self._store.nodes():
            if view.node.node_id == self.node.node_id and view.node != self.node:
                message = (
                    f"another process ({view.host}, pid {view.pid}) has joined as node {self.node.node_id}: "
                    "give every process a node id of its own; this one ends"
                )
                raise NodeBroken(message)
        _logger.warning("node %s was forgotten by the store (silent for too long?) and joins again", self.node.node_id)
        await self._store.join(self._described())

    def _carry_out(self, commands: Sequence[Command]) -> None:
        for command in commands:
            match command:
                case Begin(grant):
                    self._begin(grant)
                case Drain(grant, within):
                    self._end(grant, None if within is None else within.total_seconds())
                case Drop(grant):
                    self._drop(grant)
                case _:
                    raise AssertionError(command)

    # --- consumptions -------------------------------------------------------------------------------------------------

    def _begin(self, grant: Grant) -> None:
        if grant.share in self._working:
            self._waiting[grant.share] = grant
            return
        consumption = Consumption(self._consumers[grant.share.consumer], grant, self._around)
        if self._stop.is_set():  # granted before the leader learned that we are about to leave
            consumption.drain()
        self._working[grant.share] = (consumption, asyncio.create_task(self._consume(consumption)))

    async def _consume(self, consumption: Consumption) -> None:
        share = consumption.grant.share
        try:
            await consumption.run()
        except Exception as error:  # noqa: BLE001 - reported to whoever waits for the node
            self._break(NodeBroken(f"{consumption!r} failed: {error!r}"), error)
        finally:
            del self._working[share]
            self._broker.released(consumption.grant)
            self._backend.notifier.notify()
        following = self._waiting.pop(share, None)
        if following is not None and following in self._broker.grants:
            self._begin(following)

    def _end(self, grant: Grant, within: float | None) -> None:
        working = self._working.get(grant.share)
        if working is None or working[0].grant != grant:
            return
        consumption, _ = working
        consumption.drain()
        if within is not None:  # that is when it may be seized; the grace before is for what is cut short to end in
            grace = self.timing.grace.total_seconds()
            asyncio.get_running_loop().call_later(max(0.0, within - grace), consumption.cut_short)

    def _drop(self, grant: Grant) -> None:
        self._waiting.pop(grant.share, None)
        working = self._working.get(grant.share)
        if working is None or working[0].grant != grant:
            return
        consumption, task = working
        consumption.drop()
        asyncio.get_running_loop().call_later(self._stuck_grace, self._check_ended, consumption, task)

    def _check_ended(self, consumption: Consumption, task: asyncio.Task[None]) -> None:
        if not task.done():
            self._break(NodeBroken(f"the handler of {consumption!r} does not end though its share was taken away"))

    def _break(self, error: NodeBroken, cause: BaseException | None = None) -> None:
        error.__cause__ = cause
        if self._broken is not None and not self._broken.done():
            self._broken.set_exception(error)

    async def _patiently(self, call: Callable[[], Awaitable[T]]) -> T:
        """Call the store until it answers, or we are stopped."""
        while True:
            try:
                return await call()
            except StoreError as error:
                if self._stop.is_set():
                    raise
                _logger.warning("node %s waits for the store: %s", self.node.node_id, error)
                await asyncio.sleep(_STORE_WAIT)


def _raise_failure(ended: asyncio.Future[None]) -> None:
    """Raise what a part of a node has failed of, so that its process ends as a broken one whatever it was."""
    error = ended.exception()
    if error is None:
        return
    if isinstance(error, HoldfastError) or not isinstance(error, Exception):
        raise error
    raise NodeBroken(f"a part of the node failed: {error!r}") from error


def _checked(timing: Timing) -> Timing:
    """Refuse a timing under which a node could still work when its shares are given to another."""
    if not timing.beat * 2 < timing.self_fence < timing.ttl:
        message = (
            f"self_fence ({timing.self_fence}) must be longer than two beats ({timing.beat} each), so that one lost "
            f"report does no harm, and shorter than ttl ({timing.ttl}), so that a node stops before it is replaced"
        )
        raise ConfigError(message)
    if timing.allot_every * 2 > timing.leader_lease:
        message = f"leader_lease ({timing.leader_lease}) must be at least two passes ({timing.allot_every} each)"
        raise ConfigError(message)
    return timing
