from __future__ import annotations

from holdfast.testing.conformance.unique_upkeep import (
    TestUniqueAfterTheEnd,
    TestUniqueConcurrency,
    TestUniquePrune,
    TestUniqueRetry,
    TestUniqueTransactions,
)

__all__ = [
    "TestUniqueAfterTheEnd",
    "TestUniqueConcurrency",
    "TestUniquePrune",
    "TestUniqueRetry",
    "TestUniqueTransactions",
]
