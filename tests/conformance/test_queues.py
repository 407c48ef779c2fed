from __future__ import annotations

from holdfast.testing.conformance.queues import TestOutstanding, TestQueues, TestTasks

__all__ = ["TestOutstanding", "TestQueues", "TestTasks"]
