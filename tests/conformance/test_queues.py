from __future__ import annotations

from holdfast.testing.conformance.queues import TestOutstanding, TestQueues

__all__ = ["TestOutstanding", "TestQueues"]
