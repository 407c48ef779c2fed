from __future__ import annotations

from holdfast.testing.conformance.queued_effects import (
    TestJobsInside,
    TestQueuedCommands,
    TestReads,
    TestRefusedCommands,
)

__all__ = ["TestJobsInside", "TestQueuedCommands", "TestReads", "TestRefusedCommands"]
