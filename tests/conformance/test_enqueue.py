from __future__ import annotations

from holdfast.testing.conformance.enqueue import TestEnqueue

__all__ = ["TestEnqueue"]
