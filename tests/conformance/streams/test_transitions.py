from __future__ import annotations

from holdfast.testing.conformance.streams.transitions import TestShareTransitions

__all__ = ["TestShareTransitions"]
