from __future__ import annotations

from holdfast.testing.conformance.streams.fencing import TestConcurrentLeaders, TestLeaders, TestStaleGrants

__all__ = ["TestConcurrentLeaders", "TestLeaders", "TestStaleGrants"]
