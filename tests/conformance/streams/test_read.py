from __future__ import annotations

from holdfast.testing.conformance.streams.read import TestPartition, TestPositionAt, TestStream

__all__ = ["TestPartition", "TestPositionAt", "TestStream"]
