from __future__ import annotations

from holdfast.testing.conformance.order_keys import TestHeadEnds, TestOrderKey

__all__ = ["TestHeadEnds", "TestOrderKey"]
