from __future__ import annotations

from holdfast.testing.conformance.parents import TestParents
from holdfast.testing.conformance.parents_ends import (
    TestBrokenParents,
    TestKeptParents,
    TestLargeFamilies,
    TestParentsInTransactions,
    TestRevivedChildren,
)

__all__ = [
    "TestBrokenParents",
    "TestKeptParents",
    "TestLargeFamilies",
    "TestParents",
    "TestParentsInTransactions",
    "TestRevivedChildren",
]
