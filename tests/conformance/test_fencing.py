from __future__ import annotations

from holdfast.testing.conformance.fencing import TestStaleHandles

__all__ = ["TestStaleHandles"]
