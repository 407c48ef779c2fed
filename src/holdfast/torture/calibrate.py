"""Scale the lease to the speed of the machine.

On a busy machine a short lease expires only because its worker was not scheduled, and a margin that is too small looks
like a wrong result. So the lease is scaled; the faults are not.
"""

from __future__ import annotations

import subprocess
import sys
import time
from typing import Final

from holdfast.torture.plan import LEASE

_STARTS: Final = 2
_PER_START: Final = 8.0  # program starts that fit into one lease
_LONGEST: Final = 30.0


def fitting_lease() -> float:
    """Return the lease in seconds: the default on an idle machine, longer if starting a program is slow."""
    slowest = max(_start() for _ in range(_STARTS))
    return round(min(_LONGEST, max(LEASE, _PER_START * slowest)), 1)


def _start() -> float:
    began = time.monotonic()
    subprocess.run([sys.executable, "-P", "-c", "import holdfast"], check=False, capture_output=True)
    return time.monotonic() - began
