from __future__ import annotations

from holdfast.testing.conformance.claim import TestWhatIsGiven, TestWhatIsTaken

__all__ = ["TestWhatIsGiven", "TestWhatIsTaken"]
