from __future__ import annotations

from holdfast.testing.conformance.streams.fencing import TestLeaders, TestStaleGrants, TestUsurpers

__all__ = ["TestLeaders", "TestStaleGrants", "TestUsurpers"]
