from __future__ import annotations

from holdfast.testing.conformance.streams.refusals import TestRefusals

__all__ = ["TestRefusals"]
