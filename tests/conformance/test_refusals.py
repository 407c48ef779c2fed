from __future__ import annotations

from holdfast.testing.conformance.refusals import TestRefusals

__all__ = ["TestRefusals"]
