from __future__ import annotations

from holdfast.testing.conformance.unique_upkeep import (
    TestUniqueConcurrency,
    TestUniquePrune,
    TestUniqueRetry,
    TestUniqueTransactions,
)

__all__ = ["TestUniqueConcurrency", "TestUniquePrune", "TestUniqueRetry", "TestUniqueTransactions"]
