from __future__ import annotations

from holdfast.testing.conformance.order_lines import (
    TestLinesAmongMany,
    TestLinesInTheCallersTransaction,
    TestLinesInTransactions,
    TestThoseWhoWait,
)

__all__ = [
    "TestLinesAmongMany",
    "TestLinesInTheCallersTransaction",
    "TestLinesInTransactions",
    "TestThoseWhoWait",
]
