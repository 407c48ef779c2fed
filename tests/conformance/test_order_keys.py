from __future__ import annotations

from holdfast.testing.conformance.order_keys import TestTheEndOfTheHead, TestTheLine

__all__ = ["TestTheEndOfTheHead", "TestTheLine"]
