from __future__ import annotations

from holdfast.testing.conformance.streams.nodes import TestHeartbeat, TestJoin, TestLead, TestLeave

__all__ = ["TestHeartbeat", "TestJoin", "TestLead", "TestLeave"]
