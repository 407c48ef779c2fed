"""The verbs of the thread that extends leases and sends heartbeats."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import TypeVar

from holdfast.backends.sql.streams import nodes
from holdfast.backends.sql.streams.allocation_store import timed_heartbeat
from holdfast.model.allocation import NodeKey, Timing
from holdfast.model.job import Lease
from holdfast.model.lease_rules import EXTENSION_PARTS, NODE_HEARTBEAT_PARTS
from holdfast.store.job_rows import JobRows
from holdfast.store.steps import Steps, Verb
from holdfast.store.stream_values import OwnedShares
from holdfast.store.values import Extension, WorkerHeartbeat
from holdfast.store.verbs.job_views import cancel_asked
from holdfast.store.verbs.maintenance import heartbeat

T = TypeVar("T")
_TIMEOUT = timedelta(seconds=5)


class SqlExtender(ABC):
    """`Extender` on a SQL store, over one connection; `extend` is the store's verb."""

    def __init__(self, rows: JobRows, extend: Callable[[Sequence[Lease], timedelta], Steps[Extension]]) -> None:
        self._rows = rows
        self._extend = extend

    @abstractmethod
    def write(self, verb: Verb[T], timeout: timedelta) -> T:
        """Run a verb in one transaction; a store whose statements can be cancelled does so after `timeout`."""

    @abstractmethod
    def read(self, verb: Verb[T], timeout: timedelta) -> T:
        """Run a verb that changes nothing."""

    @abstractmethod
    def close(self) -> None: ...  # noqa: D102 - the port states the contracts

    def extend(self, leases: Sequence[Lease], duration: timedelta) -> Extension:  # noqa: D102
        return self.write(lambda: self._extend(leases, duration), min(_TIMEOUT, duration / EXTENSION_PARTS))

    def cancel_asked(self, worker_id: str) -> list[Lease]:  # noqa: D102
        return self.read(lambda: cancel_asked(self._rows, worker_id), _TIMEOUT)

    def heartbeat(self, worker: WorkerHeartbeat) -> None:  # noqa: D102
        self.write(lambda: heartbeat(self._rows, worker), _TIMEOUT)

    def node_heartbeat(self, node: NodeKey, timing: Timing) -> OwnedShares:  # noqa: D102
        return self.write(timed_heartbeat(node, timing), min(_TIMEOUT, timing.self_fence / NODE_HEARTBEAT_PARTS))

    def owned(self, node: NodeKey) -> OwnedShares:  # noqa: D102
        return self.read(lambda: nodes.owned(node), _TIMEOUT)
