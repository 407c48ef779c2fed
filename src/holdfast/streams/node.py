"""A node: a process that takes part in allocation and consumes the shares that it is granted.

Three things run concurrently: the heartbeat, in a separate thread, whose answer lists the shares of the node; the
leader pass, which acts in only one of the nodes; and a share consumer for each share. The broker and the allocator
decide; the share consumers handle the events.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Final, TypeVar
from uuid import uuid4

import msgspec

from holdfast.concurrency.uncancellable import uncancellable
from holdfast.errors import ConfigError, HoldfastError, StoreError
from holdfast.hooks.observers import Hooks
from holdfast.model.allocation import NodeKey, Share, Timing
from holdfast.model.names import check_name
from holdfast.runtime.executor import Executor
from holdfast.runtime.uptime import uptime
from holdfast.store.allocations import AllocationStore
from holdfast.store.backend import Backend
from holdfast.store.capabilities import CHILD_PROCESSES, PARK
from holdfast.store.stream_values import Member, NewNode, OwnedShares
from holdfast.streams.broker import Broker
from holdfast.streams.consumer import Consumer, OnError
from holdfast.streams.handler_process import HandlerProcesses
from holdfast.streams.heartbeat import NodeHeartbeat
from holdfast.streams.leader import Leader
from holdfast.streams.move_log import log_move
from holdfast.streams.share_consumer import NodeServices
from holdfast.streams.share_consumers import ShareConsumers

_logger = logging.getLogger("holdfast.streams")
T = TypeVar("T")
_STORE_WAIT: Final = 0.5
_LEAVE_TIMEOUT: Final = 5.0  # seconds for the store calls on leaving; without them the missing heartbeats suffice


class NodeBroken(HoldfastError):  # noqa: N818
    """The node cannot continue, and its process should exit: a handler is stuck, or a part of the node failed."""


class NodeStatus(msgspec.Struct, frozen=True):
    """A snapshot of a node."""

    node: NodeKey
    is_running: bool
    is_leader: bool
    shares: tuple[Share, ...]
    handled: int = 0
    """The number of events that the node has handled since it runs."""


class Node:
    """Runs the consumers of an app until it is stopped."""

    def __init__(
        self,
        backend: Backend,
        consumers: Sequence[Consumer],
        *,
        node_id: str | None = None,
        timing: Timing | None = None,
        stuck_grace: float = 10.0,
        processes: Callable[[], HandlerProcesses] | None = None,
    ) -> None:
        """Prepare a node. `run` calls `processes` for the runner of handlers with `executor="process"`."""
        if not consumers:
            message = "this node has no consumers, so it would be granted no shares: register some with @app.consumer"
            raise ConfigError(message)
        self.timing = _checked(timing or Timing())
        self.node = NodeKey(check_name("node", node_id or f"node-{socket.gethostname()}-{os.getpid()}"), uuid4().hex)
        self._is_fixed = node_id is not None
        self._backend = backend
        self._consumers = {consumer.name: consumer for consumer in consumers}
        self._stuck_grace = stuck_grace
        self._make_processes = processes
        self._broker = Broker(self.timing)
        self._shares: ShareConsumers | None = None
        self._around: NodeServices | None = None
        self._leader = Leader(backend, self.node, self.timing)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._answer: OwnedShares | None = None
        self._answered = asyncio.Event()
        self._stop = asyncio.Event()
        self._hurry = asyncio.Event()
        self._is_running = False
        self.heartbeat: NodeHeartbeat | None = None
        """The thread that sends heartbeats, while it runs."""
        self._broken: asyncio.Future[None] | None = None
        self.hooks = Hooks()
        """What observes this node: those of its app, if an app has made it."""
        self.has_left_handlers = False
        """Whether some handlers did not end with the node; they continue until the process ends."""

    def incarnate(self, incarnation: str) -> None:
        """Use this id for the incarnation, before the node runs: a supervisor that knows it can remove a dead node."""
        self.node = NodeKey(self.node.node_id, incarnation)
        self._leader = Leader(self._backend, self.node, self.timing)

    @property
    def _store(self) -> AllocationStore:
        return self._backend.streams.allocations

    def status(self) -> NodeStatus:
        """Return a snapshot of the node."""
        shares = () if self._shares is None else self._shares.shares
        handled = 0 if self._around is None else self._around.handled
        return NodeStatus(self.node, self._is_running, self._leader.is_leading, shares, handled)

    def stop(self) -> None:
        """Drain: finish the current events, release the shares, leave. A second call does not wait for handlers."""
        if self._stop.is_set():
            self._hurry.set()
        self._stop.set()

    # --- the life of the node -----------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Take part until stopped; raises `NodeBroken` if it cannot continue, `ConfigError` if its id is taken."""
        await self._backend.open()
        self.hooks.partition_move(log_move)
        loop = self._loop = asyncio.get_running_loop()
        self._broken = loop.create_future()
        around = self._around = NodeServices(
            self._backend,
            self.timing,
            lambda grant: self._broker.may_handle(grant, uptime()),
            self._processes(),
            self.hooks,
        )
        shares = self._shares = ShareConsumers(
            self._consumers, self._broker, around, stuck_grace=self._stuck_grace, broken=self._break
        )
        self._is_running = True

        heartbeat = NodeHeartbeat(
            self.node,
            self.timing,
            self._broker,
            open_extender=self._backend.extender,
            limits=around.handlers.limits,
            stuck_grace=self._stuck_grace,
            answered=self._receive,
            died=self._heartbeat_died,
        )

        def notified() -> None:  # called from any thread
            heartbeat.notified()
            loop.call_soon_threadsafe(shares.wake)

        unlisten = self._backend.notifier.listen(notified)
        try:
            await self._enter()
            heartbeat.start()
            self.heartbeat = heartbeat
            try:
                await self._take_part(shares)
            finally:
                self.heartbeat = None
                await uncancellable(asyncio.to_thread(heartbeat.close))  # it may be waiting for the store
        finally:
            unlisten()
            self._is_running = False
            try:
                await self._depart(shares)
            finally:
                around.handlers.close()
                if around.processes is not None:
                    await uncancellable(around.processes.close())
                await uncancellable(self.hooks.settle())

    def _processes(self) -> HandlerProcesses | None:
        if all(consumer.executor is not Executor.PROCESS for consumer in self._consumers.values()):
            return None
        if self._make_processes is None:
            message = 'this node cannot run handlers with executor="process": create it with app.node(…)'
            raise ConfigError(message)
        return self._make_processes()

    async def _enter(self) -> None:
        for consumer in self._consumers.values():
            self._require(consumer)
            await self._until_answered(partial(self._subscribe, consumer))
        await self._until_answered(lambda: self._store.join(self._described()))
        _logger.info("node %s has joined; consumers: %s", self.node.node_id, ", ".join(sorted(self._consumers)))

    def _require(self, consumer: Consumer) -> None:
        """Raise `Unsupported` if the store cannot do what a consumer needs."""
        if consumer.on_error is OnError.PARK:
            self._backend.capabilities.require(PARK)
        if consumer.executor is Executor.PROCESS:
            self._backend.capabilities.require(CHILD_PROCESSES)

    async def _subscribe(self, consumer: Consumer) -> None:
        if consumer.prepare is not None:
            await consumer.prepare()
        await self._backend.streams.consumers.subscribe(consumer.name, consumer.subscription, consumer.start)

    def _described(self) -> NewNode:
        members = tuple(Member(consumer.name, consumer.capacity) for consumer in self._consumers.values())
        return NewNode(self.node, socket.gethostname(), os.getpid(), members, self.timing, self._is_fixed)

    async def _take_part(self, shares: ShareConsumers) -> None:
        assert self._broken is not None  # noqa: S101 - set by `run`
        parts: list[asyncio.Future[None]] = [
            asyncio.create_task(self._follow(shares)),
            asyncio.create_task(self._fence_itself(shares)),
            asyncio.create_task(self._leader.run()),
            asyncio.create_task(self._drain(shares)),
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

    async def _drain(self, shares: ShareConsumers) -> None:
        """After `stop`, end the share consumers, each with a last commit and release, while heartbeats continue."""
        await self._stop.wait()
        with contextlib.suppress(StoreError, TimeoutError):  # then the leader detects it by missing heartbeats
            async with asyncio.timeout(_LEAVE_TIMEOUT):
                await self._store.drain(self.node)
        stuck = await shares.drain(self._hurry)
        if stuck:
            raise NodeBroken(f"{stuck} handlers did not end after they were drained and interrupted")

    async def _depart(self, shares: ShareConsumers) -> None:
        """End all share consumers and leave; if the store cannot be reached, missing heartbeats have the same effect.

        A node does not leave while a handler runs under one of its shares, since another node could be granted it: if
        one does not end within the grace, all shares wait until the node counts as dead.
        """
        have_ended = await shares.end()
        self.has_left_handlers = not have_ended
        with contextlib.suppress(StoreError, TimeoutError):
            async with asyncio.timeout(_LEAVE_TIMEOUT):
                await self._leader.resign()
                if have_ended:
                    await self._store.leave(self.node)
            self._backend.notifier.notify()

    # --- answers of the store -----------------------------------------------------------------------------------------

    def _receive(self, answer: OwnedShares) -> None:
        """Receive the store's answer from the heartbeat thread; only the latest counts."""
        self._answer = answer
        self._on_loop(self._answered.set)

    def _heartbeat_died(self, error: BaseException) -> None:
        self._on_loop(partial(self._break, f"no heartbeat can be sent: {error}", error))

    def _on_loop(self, action: Callable[[], None]) -> None:
        loop = self._loop
        if loop is not None and not loop.is_closed():
            loop.call_soon_threadsafe(action)

    async def _follow(self, shares: ShareConsumers) -> None:
        """Begin, drain and drop shares after each answer of the store."""
        while True:
            await self._answered.wait()
            self._answered.clear()
            answer = self._answer
            if answer is None:
                continue
            shares.carry_out(self._broker.compare(answer))
            if not answer.is_known:
                self._answer = None
                try:
                    await self._join_again()
                except StoreError as error:  # repeated after the answer to the next heartbeat
                    _logger.warning("node %s cannot join again: %s", self.node.node_id, error)

    async def _fence_itself(self, shares: ShareConsumers) -> None:
        """Interrupt the handlers once heartbeats have failed for so long that other nodes may be granted the shares.

        If the whole process was suspended meanwhile, no heartbeat has failed: none was sent. The answer to the next
        one, which is in flight now, lists the shares that are left.
        """
        heartbeat = self.timing.heartbeat_every.total_seconds()
        while True:
            begun = uptime()
            wait = min(self._broker.sure_for(begun) or heartbeat, heartbeat)  # a suspended machine prolongs a sleep
            await asyncio.sleep(wait)
            now = uptime()
            if now - begun < wait + heartbeat and not self._broker.sure_for(now):
                shares.interrupt()

    async def _join_again(self) -> None:
        """Join again after the store has removed the node, unless another process has taken its id."""
        for view in await self._store.nodes():
            if view.node.node_id == self.node.node_id and view.node != self.node:
                message = (
                    f"another process ({view.host}, pid {view.pid}) has joined as node {self.node.node_id}: "
                    "give each process a separate node id; this process ends"
                )
                raise ConfigError(message)
        _logger.warning("node %s was removed from the store (silent for too long?), joining again", self.node.node_id)
        await self._store.join(self._described())

    def _break(self, reason: str, cause: BaseException | None) -> None:
        error = NodeBroken(reason)
        error.__cause__ = cause
        if self._broken is not None and not self._broken.done():
            self._broken.set_exception(error)

    async def _until_answered(self, call: Callable[[], Awaitable[T]]) -> T:
        """Call the store until it answers or the node is stopped."""
        while True:
            try:
                return await call()
            except StoreError as error:
                if self._stop.is_set():
                    raise
                _logger.warning("node %s cannot reach the store, retrying: %s", self.node.node_id, error)
                await asyncio.sleep(_STORE_WAIT)


def _raise_failure(ended: asyncio.Future[None]) -> None:
    """Raise the error of a failed part of the node as `NodeBroken`, so that its process exits non-zero."""
    error = ended.exception()
    if error is None:
        return
    if isinstance(error, HoldfastError) or not isinstance(error, Exception):
        raise error
    raise NodeBroken(f"a part of the node failed: {error!r}") from error


def _checked(timing: Timing) -> Timing:
    """Reject a timing under which a node could still handle events when its shares are granted to another node."""
    if not timing.heartbeat_every * 2 < timing.self_fence < timing.ttl:
        message = (
            f"self_fence ({timing.self_fence}) must be longer than twice heartbeat_every ({timing.heartbeat_every}), "
            f"so that one heartbeat may be lost, and shorter than ttl ({timing.ttl}), so that a node stops before it "
            "is replaced"
        )
        raise ConfigError(message)
    if timing.allocate_every * 2 > timing.leader_lease:
        message = (
            f"leader_lease ({timing.leader_lease}) must be at least twice allocate_every ({timing.allocate_every})"
        )
        raise ConfigError(message)
    return timing
