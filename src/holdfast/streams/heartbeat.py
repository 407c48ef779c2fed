"""The thread that sends a node's heartbeat, so that a handler that blocks the event loop does not cost the partitions.

The answer to a heartbeat says which shares the node owns. After a notification the thread looks at them without a
heartbeat: a heartbeat is a write, and would notify the others.

```text
   thread   heartbeat, or a look ──▶ broker.heard: until when, and for which grants, the node may handle
                                 ──▶ event loop:   begin, drain and drop shares
```

The first step does not wait for the event loop: as soon as the loop runs again, its handlers see what is true now.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Final

from holdfast.errors import HoldfastError, StoreError
from holdfast.model.allocation import Grant, NodeKey, Timing
from holdfast.runtime.keeper_thread import KeeperThread, StuckHandlers
from holdfast.runtime.uptime import uptime
from holdfast.store.jobs import Extender
from holdfast.store.stream_values import OwnedShares
from holdfast.streams.broker import Broker

_logger = logging.getLogger("holdfast.streams")
_LOOK_EVERY: Final = 0.2  # seconds between two looks that notifications have brought about
_RETRY: Final = 0.5


class EventHandlerStuck(HoldfastError):  # noqa: N818 - reads as the sentence it states
    """A handler is past its time limit and a grace; its node sends no more heartbeats, and loses its partitions."""

    def __init__(self, grant: Grant, seconds: float) -> None:
        super().__init__(
            f"the handler of consumer {grant.share.consumer} is stuck {seconds:.1f} s past its time limit and cannot "
            "be stopped: this node gives its partitions up. Write a handler that blocks as a plain function, or run "
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
        limits: Mapping[object, tuple[float, Grant]],
        stuck_grace: float,
        answered: Callable[[OwnedShares], None],
        died: Callable[[BaseException], None],
    ) -> None:
        super().__init__(open_extender, name="holdfast-heartbeat", died=died)
        self._node = node
        self._timing = timing
        self._broker = broker
        self._answered = answered
        self._every = timing.beat.total_seconds()
        self._stuck = StuckHandlers(limits, grace=stuck_grace, tick=4 * self._every)
        self._is_notified = False
        self._due = self._look_after = float("-inf")

    def notified(self) -> None:
        """Look soon at what the node owns; callable from any thread."""
        self._is_notified = True
        self.wake()

    def now(self) -> float:
        """Read a clock that also counts the time in which the machine was suspended."""
        return uptime()

    def check(self, waited: float | None) -> None:
        """Raise `EventHandlerStuck` if a handler is."""
        now = self.now()
        if waited is not None:
            self._stuck.waited(waited, now)
        for seconds, grant in self._stuck.find(now):
            raise EventHandlerStuck(grant, seconds)

    def work(self, extender: Extender) -> float:
        """Send the heartbeat if it is due, or look if a notification has come."""
        sent = self.now()
        if sent >= self._due:
            self._is_notified = False  # before the heartbeat: what changes after it is looked at
            self._hear(extender.node_heartbeat(self._node, self._timing), sent=sent)
            self._due = sent + self._every
        elif self._is_notified and sent >= self._look_after:
            self._is_notified = False
            self._look_after = sent + _LOOK_EVERY
            self._hear(extender.owned(self._node), sent=None)
        until = min(self._due, self._look_after) if self._is_notified else self._due
        return max(0.0, until - self.now())

    def failed(self, error: StoreError) -> float:
        """Log it; send the next heartbeat soon."""
        _logger.warning("node %s cannot send its heartbeat: %s", self._node.node_id, error)
        self._due = self.now()
        return min(self._every, _RETRY)

    def _hear(self, beat: OwnedShares, *, sent: float | None) -> None:
        self._broker.heard(beat, sent=sent)
        self._answered(beat)
