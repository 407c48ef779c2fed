from __future__ import annotations

from holdfast.testing.conformance.rescue_prune import TestOperatorActions, TestPromote, TestPrune, TestRescue

__all__ = ["TestOperatorActions", "TestPromote", "TestPrune", "TestRescue"]
