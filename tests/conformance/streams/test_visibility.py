from __future__ import annotations

from holdfast.testing.conformance.streams.visibility import TestInFlight, TestOrder, TestRollback, TestSharedOrder

__all__ = ["TestInFlight", "TestOrder", "TestRollback", "TestSharedOrder"]
