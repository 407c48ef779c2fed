from __future__ import annotations

from holdfast.testing.conformance.rescue_prune import TestByAPersonsWord, TestPromote, TestPrune, TestRescue

__all__ = ["TestByAPersonsWord", "TestPromote", "TestPrune", "TestRescue"]
