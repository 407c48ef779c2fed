from __future__ import annotations

from holdfast.testing.conformance.finish import TestLostAndCancelled, TestTransitions, TestWhatIsKept

__all__ = ["TestLostAndCancelled", "TestTransitions", "TestWhatIsKept"]
