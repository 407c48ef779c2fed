"""A lease that fits the machine.

On a machine that is busy with other things a short lease expires because nobody got to run, which is no fault of
anybody's: a margin that is too small looks like a wrong result. So the lease is scaled, never the faults.
"""

from __future__ import annotations

import subprocess
import sys
import time
from typing import Final

from holdfast.torture.plan import LEASE

_STARTS: Final = 2
_PER_START: Final = 8.0  # leases hold so many starts of a program
_LONGEST: Final = 30.0


def fitting_lease() -> float:
    """Return the seconds of a lease: the usual ones on an idle machine, more where starting a program takes long."""
    slowest = max(_start() for _ in range(_STARTS))
    return round(min(_LONGEST, max(LEASE, _PER_START * slowest)), 1)


def _start() -> float:
    began = time.monotonic()
    subprocess.run([sys.executable, "-P", "-c", "import holdfast"], check=False, capture_output=True)
    return time.monotonic() - began
