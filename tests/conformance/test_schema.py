from __future__ import annotations

from holdfast.testing.conformance.schema import TestSchema, TestSharedSchema

__all__ = ["TestSchema", "TestSharedSchema"]
