from __future__ import annotations

from holdfast.testing.conformance.streams.allocation import TestAllot, TestGrant, TestRevoke, TestSeize

__all__ = ["TestAllot", "TestGrant", "TestRevoke", "TestSeize"]
