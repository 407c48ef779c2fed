from __future__ import annotations

from holdfast.testing.conformance.streams.allocation import TestAllocate, TestGrant, TestRevoke, TestSeize

__all__ = ["TestAllocate", "TestGrant", "TestRevoke", "TestSeize"]
