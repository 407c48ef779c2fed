from __future__ import annotations

from holdfast.testing.conformance.batches import TestBatchTransaction, TestSharedBatch

__all__ = ["TestBatchTransaction", "TestSharedBatch"]
