"""Names that a stream run uses in a store: categories and consumers."""

from __future__ import annotations

from typing import Final

_OURS: Final = "holdfast-torture"
MAIN: Final = f"{_OURS}-main"
SINGLES: Final = f"{_OURS}-singles"
THREADS: Final = f"{_OURS}-threads"
POISONED: Final = f"{_OURS}-poisoned"
PARTITIONS: Final = {MAIN: 16, SINGLES: 4, THREADS: 4, POISONED: 4}
"""The categories of a run, with their number of partitions."""
WEIGHTS: Final = {MAIN: 80, SINGLES: 8, THREADS: 6, POISONED: 6}

BATCH: Final = f"{_OURS}-batch"
PLAIN: Final = f"{_OURS}-plain"
SINGLE: Final = f"{_OURS}-single"
THREAD: Final = f"{_OURS}-thread"
PARK: Final = f"{_OURS}-park"
LOG: Final = f"{_OURS}-log"
CONSUMERS: Final = (BATCH, PLAIN, SINGLE, THREAD, PARK, LOG)
SHARES: Final = (
    2 * PARTITIONS[MAIN] + sum(PARTITIONS[name] for name in (SINGLES, THREADS, POISONED)) + sum(PARTITIONS.values())
)
"""The number of shares of all consumers together."""
ATOMIC: Final = (BATCH, SINGLE, THREAD, LOG)
"""Consumers that write each effect in one transaction with the position."""

POISON: Final = "poison"
"""Events of this name fail permanently, at the consumer that parks."""
STUMBLES: Final = "stumbles"
"""Events of this name fail once."""
SLOW: Final = "slow"
USUAL: Final = "happened"
