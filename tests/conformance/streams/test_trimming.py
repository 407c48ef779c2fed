from __future__ import annotations

from holdfast.testing.conformance.streams.trimming import TestNeeded, TestTrim

__all__ = ["TestNeeded", "TestTrim"]
