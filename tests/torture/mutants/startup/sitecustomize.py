"""Run by Python at its start, because this folder is in PYTHONPATH: makes the process a mutant, if it is to be one."""

from __future__ import annotations

import os
import sys
import traceback

name = os.environ.get("HOLDFAST_MUTANT")
if name:
    try:
        from tests.torture.mutants.load import load

        load(name)
    except BaseException:  # noqa: BLE001 - whatever it is, the process must not go on as if nothing had happened
        # Python itself would only print what goes wrong here, and go on without the mutant.
        traceback.print_exc()
        sys.stderr.flush()
        os._exit(113)
