from __future__ import annotations

from holdfast.testing.conformance.explanations import (
    TestExplanations,
    TestExplanationsAfterTransactions,
    TestWorkersReports,
)

__all__ = ["TestExplanations", "TestExplanationsAfterTransactions", "TestWorkersReports"]
