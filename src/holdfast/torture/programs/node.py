"""A node of a run of streams: `python -m holdfast.torture.programs.node '{…}'`."""

from __future__ import annotations

import logging
import os
import signal
import sys

import msgspec

from holdfast.model.allocation import Timing
from holdfast.runtime import failpoint
from holdfast.runtime.parent_death import die_with
from holdfast.torture.programs.settings import WorkerSettings
from holdfast.torture.recorder import recorder
from holdfast.torture.streams import consumers
from holdfast.torture.streams.app import app


def main() -> int:
    """Run until SIGTERM."""
    settings = msgspec.json.decode(sys.argv[1], type=WorkerSettings)
    die_with(settings.parent)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C on the terminal is the conductor's affair
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(process)d %(levelname)s %(message)s")
    os.environ.pop(failpoint.VARIABLE, None)  # what is armed is for this process alone
    consumers.Node.name = settings.name
    recorder.open()
    timing = Timing.for_recovery(settings.lease)
    code = app.run_worker(processes=settings.processes, node_id=settings.name, timing=timing)
    recorder.close()
    return code


if __name__ == "__main__":
    sys.exit(main())
