from __future__ import annotations

from holdfast.testing.conformance.losses import TestBlame

__all__ = ["TestBlame"]
