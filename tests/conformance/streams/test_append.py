from __future__ import annotations

from holdfast.testing.conformance.streams.append import TestCategories, TestExpectedVersion, TestPlaces, TestRepeats

__all__ = ["TestCategories", "TestExpectedVersion", "TestPlaces", "TestRepeats"]
