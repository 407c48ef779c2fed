from __future__ import annotations

from holdfast.testing.conformance.insight import TestJobs, TestLists, TestStates

__all__ = ["TestJobs", "TestLists", "TestStates"]
