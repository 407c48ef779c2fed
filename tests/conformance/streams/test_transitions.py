from __future__ import annotations

from holdfast.testing.conformance.streams.transitions import TestTransitions

__all__ = ["TestTransitions"]
