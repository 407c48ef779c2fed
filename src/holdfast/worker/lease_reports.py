"""Reports the extensions and losses of leases to the hooks; makes a value only if it has observers."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from datetime import timedelta

from holdfast.hooks.observers import Hooks
from holdfast.hooks.values import LeaseExtend, LeaseLoss
from holdfast.model.job import Lease
from holdfast.worker.machine import Machine

Margins = list[tuple[str, float]]


class LeaseReports:
    """The reports of one worker, all in its event loop."""

    def __init__(self, hooks: Hooks, worker_id: str, machine: Machine) -> None:
        self._hooks = hooks
        self._worker_id = worker_id
        self._machine = machine

    def lost(self, leases: Sequence[Lease]) -> None:
        """Let the machine drop leases that the store reported as stale, and report those that it held."""
        for job in self._machine.lost(time.monotonic(), leases):
            if self._hooks.lease_lose.observers:
                self._hooks.lease_lose.emit(LeaseLoss(self._worker_id, job, "extend"))

    def of_thread(self, in_loop: Callable[[Callable[[], None]], None]) -> Callable[[Margins], None] | None:
        """Return what the thread that extends leases calls; None if extensions are not observed now."""
        if not self._hooks.lease_extend.observers:
            return None
        return lambda margins: in_loop(lambda: self._extended(margins))

    def _extended(self, margins: Margins) -> None:
        queues, seconds = zip(*margins, strict=True) if margins else ((), ())
        if queues:
            shortest = timedelta(seconds=min(seconds))
            self._hooks.lease_extend.emit(LeaseExtend(self._worker_id, queues, shortest))
