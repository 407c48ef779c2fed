from __future__ import annotations

from holdfast.testing.conformance.streams.allocation_maintenance import TestClockSetBack, TestForgottenNodes, TestOwned

__all__ = ["TestClockSetBack", "TestForgottenNodes", "TestOwned"]
