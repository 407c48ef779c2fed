"""A consumer as a separate process: `python -m holdfast.cli.demo.child`, started only by the demo.

The URL of the store is passed in the environment, which other users of the machine cannot read. Reports are written to
stdout as JSON lines. If stdout is closed, the demo has exited, and the consumer exits too.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
from typing import Final

import msgspec

from holdfast.cli.demo.consumer import ConsumerReport, DemoConsumer
from holdfast.cli.demo.records import Records

URL: Final = "HOLDFAST_DEMO_URL"


class DemoSettings(msgspec.Struct):
    """The settings of a consumer."""

    name: str
    batch_size: int


async def consume(settings: DemoSettings) -> int:
    """Consume until no job is left or SIGTERM arrives; return the exit code."""
    from holdfast.app.app import App  # only here: importing it takes time

    async with App(os.environ[URL]) as app:
        records = Records(app)
        run = await records.run()
        if run is None:
            return 0
        consumer = DemoConsumer(records, run, name=settings.name, batch_size=settings.batch_size, on_report=_write)
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, consumer.stop)
        await consumer.run()
    return 0


def _write(report: ConsumerReport) -> None:
    sys.stdout.buffer.write(msgspec.json.encode(report) + b"\n")
    sys.stdout.buffer.flush()


def main() -> None:
    """Run the consumer described by the first argument."""
    # The demo handles Ctrl-C and stops its consumers.
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
