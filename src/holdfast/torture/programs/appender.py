"""An appender of a run of streams: `python -m holdfast.torture.programs.appender '{…}'`."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import random
import signal
import sys
import time

import msgspec

from holdfast.runtime.parent_death import die_with
from holdfast.torture.programs.appending import Appending
from holdfast.torture.programs.settings import Produced, ProducerSettings
from holdfast.torture.recorder import recorder
from holdfast.torture.streams.app import app

_TELL_EVERY = 0.5  # seconds
_TRICKLE = 5  # times slower, once all that was wanted is appended


class Appender:
    """Appends at a pace."""

    def __init__(self, settings: ProducerSettings) -> None:
        self._settings = settings
        chance = random.Random(f"{settings.seed}/{settings.name}")  # noqa: S311 - repeatable on purpose
        self._appending = Appending(settings.name, chance, rate=settings.rate, events=settings.jobs)
        self._stopped = asyncio.Event()
        self._told_at = 0.0

    def stop(self) -> None:
        """Let the call in flight be the last."""
        self._stopped.set()

    async def run(self) -> None:
        """Append until stopped."""
        began = time.monotonic()
        while not self._stopped.is_set():
            await self._appending.once()
            self._tell()
            ahead = self._due(self._appending.appended) - (time.monotonic() - began)
            if ahead > 0:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(min(ahead, 1.0)):
                        await self._stopped.wait()
        self._tell(is_last=True)

    def _due(self, appended: int) -> float:
        events, rate = self._settings.jobs, self._settings.rate
        return min(appended, events) / rate + max(0, appended - events) * _TRICKLE / rate

    def _tell(self, *, is_last: bool = False) -> None:
        now = time.monotonic()
        if is_last or now >= self._told_at + _TELL_EVERY:
            self._told_at = now
            report = Produced(self._appending.appended, self._appending.calls)
            os.write(1, msgspec.json.encode(report) + b"\n")


async def append(settings: ProducerSettings) -> None:
    """Append until SIGTERM."""
    appender = Appender(settings)
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, appender.stop)
    try:
        await appender.run()
    finally:
        await app.close()


def main() -> None:
    """Run the appender described by the argument."""
    settings = msgspec.json.decode(sys.argv[1], type=ProducerSettings)
    die_with(settings.parent)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C on the terminal is the conductor's affair
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(process)d %(levelname)s %(message)s")
    recorder.open()
    asyncio.run(append(settings))
    recorder.close()


if __name__ == "__main__":
    main()
