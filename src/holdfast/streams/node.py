"""A node: a process that takes part in allocation and consumes what it is allotted.

Three things go on beside one another: the report (that we live; the answer says what is ours), the pass of the leader
(only one of the nodes gets to do it), and one consumption for each share that we hold. The decisions are the broker's
and the allocator's, the consumptions are the hands'.
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

from holdfast.errors import ConfigError, HoldfastError, StoreError
from holdfast.model.allocation import NodeKey, Share, Timing
from holdfast.model.names import check_name
from holdfast.runtime.uptime import uptime
from holdfast.store.allocations import AllocationStore
from holdfast.store.backend import Backend
from holdfast.store.stream_values import Member, NewNode
from holdfast.streams.broker import Broker
from holdfast.streams.consumer import Consumer
from holdfast.streams.leader import Leader
from holdfast.streams.share_consumer import NodeServices
from holdfast.streams.share_consumers import ShareConsumers

_logger = logging.getLogger("holdfast.streams")
T = TypeVar("T")
_LOOK_EVERY: Final = 0.2  # seconds between two looks at what is ours that hints have brought about
_STORE_WAIT: Final = 0.5
_FAREWELL: Final = 5.0  # seconds for telling the store that we leave; it finds out by our silence, too


class NodeBroken(HoldfastError):  # noqa: N818
    """The node cannot go on, and its process is to end: a handler is stuck, or its own loop failed."""


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
        self._hands: ShareConsumers | None = None
        self._leader = Leader(backend, self.node, self.timing)
        self._hint = asyncio.Event()
        self._stop = asyncio.Event()
        self._hurry = asyncio.Event()
        self._is_running = False
        self._broken: asyncio.Future[None] | None = None
        self.has_left_handlers = False
        """Whether handlers did not end with the node; they run on until their process ends."""

    @property
    def _store(self) -> AllocationStore:
        return self._backend.streams.allocations

    def status(self) -> NodeStatus:
        """Tell what the node is doing."""
        shares = () if self._hands is None else self._hands.shares
        return NodeStatus(self.node, self._is_running, self._leader.is_leading, shares)

    def stop(self) -> None:
        """End: finish what is being handled, release the shares, leave. Asked again: do not wait for handlers."""
        if self._stop.is_set():
            self._hurry.set()
        self._stop.set()
        self._hint.set()

    # --- the life of the node -----------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Take part until stopped; raises `NodeBroken` if it cannot go on, `ConfigError` if its name is taken."""
        await self._backend.open()
        loop = asyncio.get_running_loop()
        self._broken = loop.create_future()
        around = NodeServices(self._backend, self.timing, lambda: self._broker.may_dispatch(uptime()))
        hands = self._hands = ShareConsumers(
            self._consumers, self._broker, around, stuck_grace=self._stuck_grace, broken=self._break
        )
        self._is_running = True

        def take_hint() -> None:
            self._hint.set()
            hands.wake()

        def hinted() -> None:  # called from any thread
            loop.call_soon_threadsafe(take_hint)

        unlisten = self._backend.notifier.listen(hinted)
        try:
            await self._enter()
            await self._take_part(hands)
        finally:
            unlisten()
            self._is_running = False
            try:
                await self._depart(hands)
            finally:
                around.threads.close()

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

    async def _take_part(self, hands: ShareConsumers) -> None:
        assert self._broken is not None  # noqa: S101 - set by `run`
        parts: list[asyncio.Future[None]] = [
            asyncio.create_task(self._report(hands)),
            asyncio.create_task(self._fence_itself(hands)),
            asyncio.create_task(self._leader.run()),
            asyncio.create_task(self._drain(hands)),
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

    async def _drain(self, hands: ShareConsumers) -> None:
        """Once stopped, end the consumptions, each with its last commit and release, while reports go on."""
        await self._stop.wait()
        with contextlib.suppress(StoreError, TimeoutError):  # then the leader will notice that we have gone
            async with asyncio.timeout(_FAREWELL):
                await self._store.drain(self.node)
        stuck = await hands.drain(self._hurry)
        if stuck:
            raise NodeBroken(f"{stuck} handlers do not end though they were asked to and told to")

    async def _depart(self, hands: ShareConsumers) -> None:
        """Let go of everything; what cannot be said to the store it will find out by our silence.

        Shares are not given up while a handler works on one of them, lest another node begins beside it: where one does
        not end within the grace, all are left to our silence.
        """
        have_ended = await hands.end()
        self.has_left_handlers = not have_ended
        with contextlib.suppress(StoreError, TimeoutError):
            async with asyncio.timeout(_FAREWELL):
                await self._leader.resign()
                if have_ended:
                    await self._store.leave(self.node)
            self._backend.notifier.notify()

    # --- reporting ----------------------------------------------------------------------------------------------------

    async def _report(self, hands: ShareConsumers) -> None:
        """Report that we live, take in what is ours, again and again."""
        while True:
            self._hint.clear()  # before the report: what changes after it is looked at before the next
            sent = uptime()
            due = sent + self.timing.beat.total_seconds()
            try:
                beat = await self._store.beat(self.node, self.timing)
                if not beat.is_known:
                    await self._enter_again(hands)
                    continue
                hands.carry_out(self._broker.answered(beat, sent=sent))
            except StoreError as error:
                _logger.warning("node %s cannot report to the store: %s", self.node.node_id, error)
                due = uptime() + min(self.timing.beat.total_seconds(), _STORE_WAIT)
            await self._answer_hints(hands, due)

    async def _answer_hints(self, hands: ShareConsumers, due: float) -> None:
        """Until the next report is due, look at what is ours whenever something may have changed.

        A hint is answered with a look and not with a report: a report is a change, and so a hint to others.
        """
        while (left := due - uptime()) > 0:
            try:
                async with asyncio.timeout(left):
                    await self._hint.wait()
                    self._hint.clear()
                    owned = await self._store.owned(self.node)
                    if not owned.is_known:
                        return
                    hands.carry_out(self._broker.told(owned))
                    await asyncio.sleep(_LOOK_EVERY)
            except TimeoutError:
                return
            except StoreError as error:  # the report will say it louder
                _logger.debug("node %s cannot look at what is its own: %s", self.node.node_id, error)
                await asyncio.sleep(min(_LOOK_EVERY, left))

    async def _fence_itself(self, hands: ShareConsumers) -> None:
        """Interrupt what is being handled whenever our reports have failed for so long that others may take over.

        If this loop stood still meanwhile, by a handler that blocks it or with the whole process, no report has failed:
        none was sent. The next one, which is under way now, tells what is still ours.
        """
        beat = self.timing.beat.total_seconds()
        while True:
            begun = uptime()
            wait = min(self._broker.sure_for(begun) or beat, beat)  # a suspended machine makes a sleep longer, unseen
            await asyncio.sleep(wait)
            now = uptime()
            if now - begun < wait + beat and not self._broker.sure_for(now):
                hands.interrupt()

    async def _enter_again(self, hands: ShareConsumers) -> None:
        """Join again after the store has forgotten us; but not where another process has taken our name."""
        hands.carry_out(self._broker.drop_all())
        for view in await self._store.nodes():
            if view.node.node_id == self.node.node_id and view.node != self.node:
                message = (
                    f"another process ({view.host}, pid {view.pid}) has joined as node {self.node.node_id}: "
                    "give every process a node id of its own; this one ends"
                )
                raise ConfigError(message)
        _logger.warning("node %s was forgotten by the store (silent for too long?) and joins again", self.node.node_id)
        await self._store.join(self._described())

    def _break(self, reason: str, cause: BaseException | None) -> None:
        error = NodeBroken(reason)
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
