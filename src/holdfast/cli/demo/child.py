"""A consumer as a program of its own: `python -m holdfast.cli.demo.child`, started by the demo alone.

The store's URL comes by the environment, where other users of the machine cannot read it. Reports go to stdout as lines
of JSON; when nobody reads them any more, the demo is gone, and the consumer ends.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
from typing import Final

import msgspec

from holdfast.app.app import App
from holdfast.cli.demo.consumer import ConsumerReport, DemoConsumer
from holdfast.cli.demo.records import Records

URL: Final = "HOLDFAST_DEMO_URL"


class DemoSettings(msgspec.Struct):
    """What the demo tells a consumer."""

    name: str
    batch_size: int


async def consume(settings: DemoSettings) -> int:
    """Consume until nothing is left or SIGTERM comes; return the exit code."""
    async with App(os.environ[URL]) as app:
        records = Records(app)
        run = await records.run()
        if run is None:
            return 0
        consumer = DemoConsumer(records, run, name=settings.name, batch_size=settings.batch_size, told=_tell)
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, consumer.stop)
        await consumer.run()
    return 0


def _tell(report: ConsumerReport) -> None:
    sys.stdout.buffer.write(msgspec.json.encode(report) + b"\n")
    sys.stdout.buffer.flush()


def main() -> None:
    """Run the consumer described by the first argument."""
    # Ctrl-C on the terminal is the demo's affair: it stops its consumers in order.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    logging.getLogger("holdfast").setLevel(logging.ERROR)
    settings = msgspec.json.decode(sys.argv[1], type=DemoSettings)
    try:
        sys.exit(asyncio.run(consume(settings)))
    except BrokenPipeError:
        # Nobody reads: leave without flushing what is buffered, which would only raise again.
        os._exit(1)


if __name__ == "__main__":
    main()
