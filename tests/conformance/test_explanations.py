from __future__ import annotations

from holdfast.testing.conformance.explanations import TestExplanations, TestWorkersReports

__all__ = ["TestExplanations", "TestWorkersReports"]
