from __future__ import annotations

from holdfast.testing.conformance.streams.operators import TestForget, TestLag, TestNotFound, TestPause, TestReset

__all__ = ["TestForget", "TestLag", "TestNotFound", "TestPause", "TestReset"]
