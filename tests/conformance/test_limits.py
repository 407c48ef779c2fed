from __future__ import annotations

from holdfast.testing.conformance.limits import TestLimitSettings, TestRateLimits, TestRunningLimits

__all__ = ["TestLimitSettings", "TestRateLimits", "TestRunningLimits"]
