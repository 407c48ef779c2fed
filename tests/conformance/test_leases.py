from __future__ import annotations

from holdfast.testing.conformance.leases import TestExtend, TestProgressAndVerify, TestRelease, TestReplyLost

__all__ = ["TestExtend", "TestProgressAndVerify", "TestRelease", "TestReplyLost"]
