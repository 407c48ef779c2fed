from __future__ import annotations

from holdfast.testing.conformance.queued_batches import TestQueuedBatches

__all__ = ["TestQueuedBatches"]
