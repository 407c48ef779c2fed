from __future__ import annotations

from holdfast.testing.conformance.claim import TestClaimLeases, TestClaimSelection

__all__ = ["TestClaimLeases", "TestClaimSelection"]
