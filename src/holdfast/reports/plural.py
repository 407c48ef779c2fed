"""The counts of `model.counted`, for the pages and sentences."""

from __future__ import annotations

from holdfast.model.counted import counted

__all__ = ["counted"]
