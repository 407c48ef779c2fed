from __future__ import annotations

from holdfast.testing.conformance.blocked_jobs import (
    TestBlockedJobs,
    TestOrderKeyCallersTransaction,
    TestOrderKeyConcurrency,
    TestOrderKeyTransactions,
)

__all__ = [
    "TestBlockedJobs",
    "TestOrderKeyCallersTransaction",
    "TestOrderKeyConcurrency",
    "TestOrderKeyTransactions",
]
