from __future__ import annotations

from holdfast.testing.conformance.notify import TestEnds, TestEndsOfOthers, TestNotify, TestNotifyOthers

__all__ = ["TestEnds", "TestEndsOfOthers", "TestNotify", "TestNotifyOthers"]
