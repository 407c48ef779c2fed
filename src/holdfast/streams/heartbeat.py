"""The thread that sends a node's heartbeat, so that a blocked event loop does not cost the node its shares.

The answer to a heartbeat lists the shares that the node owns. After a notification the thread only reads them: a
heartbeat is a write, and would notify the other nodes.

```text
   thread   heartbeat, or a read ──▶ broker.answered: until when, and under which grants, the node may handle events
                                 ──▶ event loop:   begin, drain and drop shares
```

The first step does not wait for the event loop: a loop that was blocked sees the current grants as soon as it runs.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Hashable, Mapping
from typing import Final

from holdfast.errors import HoldfastError, StoreError
from holdfast.model.allocation import Grant, NodeKey, Timing
from holdfast.runtime.keeper_thread import KeeperThread, StuckHandlers
from holdfast.runtime.uptime import uptime
from holdfast.store.jobs import Extender
from holdfast.store.stream_values import OwnedShares
from holdfast.streams.broker import Broker

_logger = logging.getLogger("holdfast.streams")
_LOOK_EVERY: Final = 0.2  # minimum seconds between two reads caused by notifications
_RETRY: Final = 0.5


class EventHandlerStuck(HoldfastError):  # noqa: N818 - reads as the sentence it states
    """A handler is past its time limit and a grace; its node sends no more heartbeats, and loses its shares."""

    def __init__(self, grant: Grant, seconds: float) -> None:
        super().__init__(
            f"the handler of consumer {grant.share.consumer} is stuck {seconds:.1f} s past its time limit and cannot "
            "be stopped: this node abandons its partitions. Write a blocking handler as a plain function, or run "
            'it with executor="process"'
        )


class NodeHeartbeat(KeeperThread):
    """Sends heartbeats until it is closed. `answered` and `died` are called in the thread."""

    def __init__(
        self,
        node: NodeKey,
        timing: Timing,
        broker: Broker,
        *,
        open_extender: Callable[[], Extender],
        limits: Mapping[Hashable, tuple[float, Grant]],
        stuck_grace: float,
        answered: Callable[[OwnedShares], None],
        died: Callable[[BaseException], None],
    ) -> None:
        super().__init__(open_extender, name="holdfast-heartbeat", died=died)
        self._node = node
        self._timing = timing
        self._broker = broker
        self._answered = answered
        self._every = timing.heartbeat_every.total_seconds()
        self._stuck = StuckHandlers(limits, grace=stuck_grace, tick=4 * self._every)
        self._is_notified = False
        self._due = self._look_after = float("-inf")

    def notified(self) -> None:
        """Read the shares of the node soon; callable from any thread.

        Busy nodes are notified hundreds of times a second: a thread that will look anyway is not woken for each.
        """
        if not self._is_notified:
            self._is_notified = True
            self.wake()

    def now(self) -> float:
        """Return the time of a clock that also counts while the machine is suspended."""
        return uptime()

    def check(self, waited: float | None) -> None:
        """Raise `EventHandlerStuck` if a handler is stuck."""
        now = self.now()
        if waited is not None:
            self._stuck.waited(waited, now)
        for seconds, grant in self._stuck.find(now):
            raise EventHandlerStuck(grant, seconds)

    def work(self, extender: Extender) -> float:
        """Send the heartbeat if it is due, or read the shares after a notification."""
        sent = self.now()
        if sent >= self._due:
            self._is_notified = False  # before the heartbeat: a later change sets it again
            self._receive(extender.node_heartbeat(self._node, self._timing), sent=sent)
            self._due = sent + self._every
        elif self._is_notified and sent >= self._look_after:
            self._is_notified = False
            self._look_after = sent + _LOOK_EVERY
            self._receive(extender.owned(self._node), sent=None)
        until = min(self._due, self._look_after) if self._is_notified else self._due
        return max(0.0, until - self.now())

    def failed(self, error: StoreError) -> float:
        """Log the error; send the next heartbeat soon."""
        _logger.warning("node %s cannot send its heartbeat: %s", self._node.node_id, error)
        self._due = self.now()
        return min(self._every, _RETRY)

    def _receive(self, answer: OwnedShares, *, sent: float | None) -> None:
        self._broker.answered(answer, sent=sent)
        self._answered(answer)
