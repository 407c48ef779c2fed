from __future__ import annotations

from holdfast.testing.conformance.time import TestTime

__all__ = ["TestTime"]
