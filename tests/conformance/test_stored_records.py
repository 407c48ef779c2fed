from __future__ import annotations

from holdfast.testing.conformance.stored_records import TestRacesForRecords, TestRecords

__all__ = ["TestRacesForRecords", "TestRecords"]
