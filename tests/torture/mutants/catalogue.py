"""All mutants, by name."""

from __future__ import annotations

from typing import Final

from tests.torture.mutants.counting import COUNTING
from tests.torture.mutants.effects import EFFECTS
from tests.torture.mutants.endings import ENDINGS
from tests.torture.mutants.fences import FENCES
from tests.torture.mutants.graphs import GRAPHS
from tests.torture.mutants.limits import LIMITS
from tests.torture.mutants.mutant import Mutant
from tests.torture.mutants.paced import PACED
from tests.torture.mutants.schedules import SCHEDULES
from tests.torture.mutants.unique import UNIQUE

MUTANTS: Final[dict[str, Mutant]] = {
    mutant.name: mutant
    for mutant in (*FENCES, *COUNTING, *ENDINGS, *EFFECTS, *UNIQUE, *GRAPHS, *LIMITS, *PACED, *SCHEDULES)
}
