from __future__ import annotations

from holdfast.testing.conformance.streams.transactions import (
    TestJoined,
    TestStreamAsync,
    TestStreamBlocking,
    TestStreamShared,
)

__all__ = ["TestJoined", "TestStreamAsync", "TestStreamBlocking", "TestStreamShared"]
