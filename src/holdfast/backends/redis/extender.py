"""The verbs of the thread that extends leases and sends heartbeats, over a separate connection."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import NoReturn, TypeVar

from holdfast.backends.redis.job_rows import MANY, RedisJobRows, fenced
from holdfast.backends.redis.runners import run_blocking
from holdfast.backends.redis.scripts import EXTEND
from holdfast.backends.redis.steps import ScriptCall
from holdfast.backends.redis.wire import BlockingWire
from holdfast.model.allocation import NodeKey, Timing
from holdfast.model.instants import span_micros
from holdfast.model.job import Lease
from holdfast.store.steps import Steps, Verb
from holdfast.store.stream_values import OwnedShares
from holdfast.store.values import Extension, WorkerHeartbeat
from holdfast.store.verbs.job_views import cancel_asked
from holdfast.store.verbs.maintenance import heartbeat

T = TypeVar("T")
_TIMEOUT = 5.0
_SHARE = 8  # of the lease duration: a longer wait is abandoned, so that another attempt is still in time


class RedisExtender:
    """`Extender` on Redis."""

    def __init__(self, wire: BlockingWire, rows: RedisJobRows, no_streams: Callable[[], NoReturn]) -> None:
        self._wire = wire
        self._rows = rows
        self._no_streams = no_streams
        self._timeout = _TIMEOUT

    def extend(self, leases: Sequence[Lease], duration: timedelta) -> Extension:  # noqa: D102 - the port states the contracts
        return self._run(lambda: _extend(leases, duration), duration)

    def cancel_asked(self, worker_id: str) -> list[Lease]:  # noqa: D102
        return self._run(lambda: cancel_asked(self._rows, worker_id))

    def heartbeat(self, worker: WorkerHeartbeat) -> None:  # noqa: D102
        self._run(lambda: heartbeat(self._rows, worker), worker.lease)

    def _run(self, verb: Verb[T], lease: timedelta | None = None) -> T:
        """Run a verb; how long it waits for a connection and for each reply follows from the last `lease`."""
        if lease is not None:
            self._timeout = min(_TIMEOUT, lease.total_seconds() / _SHARE)
        return run_blocking(self._wire, self._rows.directory, verb, self._timeout)

    def node_heartbeat(self, node: NodeKey, timing: Timing) -> OwnedShares:  # noqa: ARG002, D102
        self._no_streams()

    def owned(self, node: NodeKey) -> OwnedShares:  # noqa: ARG002, D102
        self._no_streams()

    def close(self) -> None:  # noqa: D102
        self._wire.close()


def _extend(leases: Sequence[Lease], duration: timedelta) -> Steps[Extension]:
    answers = b""
    for start in range(0, len(leases), MANY):
        answers += yield ScriptCall(EXTEND, [fenced(leases[start : start + MANY]), span_micros(duration), 1])
    pairs = list(zip(leases, answers.decode(), strict=True))
    return Extension(
        lost=[lease for lease, answer in pairs if answer == "0"],
        cancel_asked=[lease for lease, answer in pairs if answer == "2"],
    )
