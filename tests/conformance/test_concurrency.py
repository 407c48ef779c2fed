from __future__ import annotations

from holdfast.testing.conformance.concurrency import TestManyBackends, TestManyTasks

__all__ = ["TestManyBackends", "TestManyTasks"]
