"""A node of a stream run: `python -m holdfast.torture.programs.node '{…}'`."""

from __future__ import annotations

import os
import sys

from holdfast.model.allocation import Timing
from holdfast.runtime import failpoint
from holdfast.torture.programs.opening import opened
from holdfast.torture.programs.settings import WorkerProgramSettings
from holdfast.torture.streams import consumers
from holdfast.torture.streams.app import app


def main() -> int:
    """Run until SIGTERM."""
    with opened(WorkerProgramSettings) as settings:
        os.environ.pop(failpoint.VARIABLE, None)  # the armed fault is for this process only
        consumers.NodeProcess.name = settings.name
        timing = Timing.for_recovery(settings.lease)
        return app.run_worker(processes=settings.processes, node_id=settings.name, timing=timing)


if __name__ == "__main__":
    sys.exit(main())
