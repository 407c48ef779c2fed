from __future__ import annotations

from holdfast.testing.conformance.streams.transactions import TestAsync, TestBlocking, TestJoined, TestShared

__all__ = ["TestAsync", "TestBlocking", "TestJoined", "TestShared"]
