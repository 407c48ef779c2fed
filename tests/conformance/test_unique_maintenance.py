from __future__ import annotations

from holdfast.testing.conformance.unique_maintenance import (
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
