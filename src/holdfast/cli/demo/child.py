"""A worker as a separate process: `python -m holdfast.cli.demo.child`, started only by the demo.

The URL of the store is passed in the environment, which other users of the machine cannot read. Reports are written to
stdout as JSON lines. If stdout is closed, the demo has exited, and the worker exits too.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
from typing import Final

import msgspec

from holdfast.cli.demo.choice import records_of
from holdfast.cli.demo.worker import DemoReport, DemoWorker

URL: Final = "HOLDFAST_DEMO_URL"


class DemoSettings(msgspec.Struct):
    """The settings of a worker."""

    name: str
    batch_size: int


async def consume(settings: DemoSettings) -> int:
    """Consume until no job is left or SIGTERM arrives; return the exit code."""
    from holdfast.app.app import App  # only here: importing it takes time

    async with App(os.environ[URL]) as app:
        records = records_of(app)
        run = await records.run()
        if run is None:
            return 0
        worker = DemoWorker(records, run, name=settings.name, batch_size=settings.batch_size, on_report=_write)
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, worker.stop)
        await worker.run()
    return 0


def _write(report: DemoReport) -> None:
    sys.stdout.buffer.write(msgspec.json.encode(report) + b"\n")
    sys.stdout.buffer.flush()


def main() -> None:
    """Run the worker described by the first argument."""
    # The demo handles Ctrl-C and stops its workers.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    logging.getLogger("holdfast").setLevel(logging.ERROR)
    settings = msgspec.json.decode(sys.argv[1], type=DemoSettings)
    try:
        sys.exit(asyncio.run(consume(settings)))
    except BrokenPipeError:
        # The reader is gone: exit without flushing the buffer, which would raise again.
        os._exit(1)


if __name__ == "__main__":
    main()
