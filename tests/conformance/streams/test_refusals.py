from __future__ import annotations

from holdfast.testing.conformance.streams.refusals import TestStreamRefusals

__all__ = ["TestStreamRefusals"]
