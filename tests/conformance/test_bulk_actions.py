from __future__ import annotations

from holdfast.testing.conformance.bulk_actions import TestCancelAll, TestDelete, TestRun

__all__ = ["TestCancelAll", "TestDelete", "TestRun"]
