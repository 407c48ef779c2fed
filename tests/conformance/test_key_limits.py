from __future__ import annotations

from holdfast.testing.conformance.key_limits import TestKeyLimits, TestKeyRates

__all__ = ["TestKeyLimits", "TestKeyRates"]
