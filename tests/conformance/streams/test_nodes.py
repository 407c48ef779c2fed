from __future__ import annotations

from holdfast.testing.conformance.streams.nodes import TestBeat, TestJoin, TestLead, TestLeave

__all__ = ["TestBeat", "TestJoin", "TestLead", "TestLeave"]
