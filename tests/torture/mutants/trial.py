"""Applies every mutant in a child of this process: each must find what it replaces. Run as a program."""

from __future__ import annotations

import importlib
import os
import sys
import traceback

from tests.torture.mutants.catalogue import MUTANTS
from tests.torture.mutants.mutant import Mutant
from tests.torture.mutants.streams import STREAM_MUTANTS

STORES = ("postgres", "redis", "sqlite")
MODULES = ("holdfast.app.app", "holdfast.backends.kafka", *(f"holdfast.backends.{store}.backend" for store in STORES))
"""Imported once, before the children: between them they import all that a mutant replaces."""


def try_out(mutant: Mutant) -> int:
    """Apply a mutant in a child; return the child's exit code."""
    child = os.fork()
    if child:
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    try:
        for patch in mutant.patches:
            patch.apply()
    except BaseException:  # noqa: BLE001 - printed, and the parent fails
        traceback.print_exc()
        os._exit(1)
    os._exit(0)


if __name__ == "__main__":
    for module in MODULES:
        importlib.import_module(module)
    sys.exit(", ".join(name for name, mutant in {**MUTANTS, **STREAM_MUTANTS}.items() if try_out(mutant)) or None)
