from __future__ import annotations

from holdfast.testing.conformance.finish import TestLostAndCancelled, TestRecordedOutcomes, TestTransitions

__all__ = ["TestLostAndCancelled", "TestRecordedOutcomes", "TestTransitions"]
