from __future__ import annotations

from holdfast.testing.conformance.streams.parking import TestDrop, TestPark, TestRetry

__all__ = ["TestDrop", "TestPark", "TestRetry"]
