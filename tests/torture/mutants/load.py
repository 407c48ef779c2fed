"""Loads the mutant that the environment names into this process, before anything else of the product runs.

`tests/torture/mutants/startup` holds a `sitecustomize` that imports this module: with that folder and the root of the
repository in PYTHONPATH, every Python process that is started becomes a mutant, job children included.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Final

from tests.torture.mutants.catalogue import MUTANTS
from tests.torture.mutants.patching import MissingTarget
from tests.torture.mutants.streams import STREAM_MUTANTS

VARIABLE: Final = "HOLDFAST_MUTANT"
CONTROL: Final = "none"
"""The product as it is, under the same work and the same faults."""
STARTUP: Final = Path(__file__).parent / "startup"
ROOT: Final = Path(__file__).parents[3]


def environment(name: str) -> dict[str, str]:
    """Return the environment in which Python processes become this mutant."""
    there = [os.environ["PYTHONPATH"]] if os.environ.get("PYTHONPATH") else []
    return {VARIABLE: name, "PYTHONPATH": os.pathsep.join([str(STARTUP), str(ROOT), *there])}


def load(name: str) -> None:
    """Change the product in this process, unless the name is that of the control; and the work in either case."""
    for module in sys.modules:
        if module.partition(".")[0] == "holdfast":
            raise MissingTarget(f"{module} was there before the mutant, and may have kept what that replaces")
    if name in STREAM_MUTANTS:
        for patch in STREAM_MUTANTS[name].patches:
            patch.apply()
        return
    mutant = MUTANTS.get(name)
    if mutant is None and name != CONTROL:
        raise MissingTarget(f"no mutant is called {name}")
    for patch in mutant.patches if mutant is not None else ():
        patch.apply()
    from tests.torture.mutants.work import FEATURES, replace_works  # by now the product is what it is to be

    replace_works(
        killers=mutant is None or mutant.under == "killers", features=FEATURES if mutant is None else mutant.caught_by
    )
