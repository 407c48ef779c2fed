"""The pace of a program that creates jobs or events: its rate, and slower once there are enough, during the faults."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import time

import msgspec

from holdfast.torture.programs.settings import Produced, ProducerSettings

_REPORT_EVERY = 0.5  # seconds
_TRICKLE = 5  # times slower, once all planned jobs are created
_LOOK_EVERY = 1.0  # seconds


class ProducerPace:
    """Keeps to the rate until SIGTERM, and reports progress to the conductor."""

    def __init__(self, settings: ProducerSettings) -> None:
        self._settings = settings
        self._stopped = asyncio.Event()
        self._began = time.monotonic()
        self._reported_at = 0.0
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, self._stopped.set)

    @property
    def is_over(self) -> bool:
        """Whether the call in flight is the last."""
        return self._stopped.is_set()

    async def keep(self, produced: Produced) -> None:
        """Wait until more is due, for a while at most."""
        now = time.monotonic()
        if now >= self._reported_at + _REPORT_EVERY:
            self._reported_at = now
            self.report(produced)
        ahead = self._due(produced.jobs) - (now - self._began)
        if ahead > 0:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(min(ahead, _LOOK_EVERY)):
                    await self._stopped.wait()

    def _due(self, made: int) -> float:
        """Return after how many seconds so many are due."""
        wanted, rate = self._settings.jobs, self._settings.rate
        return min(made, wanted) / rate + max(0, made - wanted) * _TRICKLE / rate

    def report(self, produced: Produced) -> None:
        """Report to the conductor; at the end in any case."""
        os.write(1, msgspec.json.encode(produced) + b"\n")
