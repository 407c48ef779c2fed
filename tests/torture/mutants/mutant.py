"""What a mutant is."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from tests.torture.mutants.patching import Patch

SQLITE: Final = "sqlite"
POSTGRES: Final = "postgresql"
REDIS: Final = "redis"
SQLITE_AND_KAFKA: Final = "sqlite+kafka"
PULLING: Final = "stops, pulling"
"""A mix of faults in which one of the workers is a program that claims by itself."""


class Mutant(NamedTuple):
    """A deliberate bug: where it is put, what it does, and which invariants would forbid it."""

    name: str
    store: str
    bug: str
    patches: tuple[Patch, ...]
    caught_by: frozenset[str]
    """Each of these is a sign of the bug; one is enough."""
    under: str
    """The mix of faults that brings the bug to light, of `faults.MIXES`."""
    strands: bool = False
    """Whether jobs that never end are a sign of the bug, and not of a slow machine."""

    def is_caught(self, broken: Iterable[str], *, is_drained: bool) -> bool:
        """Tell whether the checker has found this bug."""
        signs = self.caught_by if is_drained or self.strands else self.caught_by - {"I1", "I21"}
        return not signs.isdisjoint(broken)

    @property
    def target(self) -> str:
        return ", ".join(dict.fromkeys(patch.target for patch in self.patches))


def mutant(
    name: str, store: str, bug: str, *patches: Patch, caught_by: str, under: str = "calm", strands: bool = False
) -> Mutant:
    return Mutant(name, store, bug, patches, frozenset(caught_by.split()), under, strands)
