from __future__ import annotations

from holdfast.testing.conformance.leases import TestExtend, TestProgressAndVerify, TestRelease, TestUnheard

__all__ = ["TestExtend", "TestProgressAndVerify", "TestRelease", "TestUnheard"]
