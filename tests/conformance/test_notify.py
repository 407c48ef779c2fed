from __future__ import annotations

from holdfast.testing.conformance.notify import TestNotify, TestNotifyOthers

__all__ = ["TestNotify", "TestNotifyOthers"]
