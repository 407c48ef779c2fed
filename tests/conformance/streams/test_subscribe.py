from __future__ import annotations

from holdfast.testing.conformance.streams.subscribe import TestCompletion, TestOneStream, TestStart, TestSubscribe

__all__ = ["TestCompletion", "TestOneStream", "TestStart", "TestSubscribe"]
