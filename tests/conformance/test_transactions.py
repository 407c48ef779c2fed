from __future__ import annotations

from holdfast.testing.conformance.transactions import TestAsync, TestBlocking, TestShared

__all__ = ["TestAsync", "TestBlocking", "TestShared"]
