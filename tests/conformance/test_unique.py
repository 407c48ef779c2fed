from __future__ import annotations

from holdfast.testing.conformance.unique import TestUniqueConflicts, TestUniqueRepeats, TestUniqueScopes

__all__ = ["TestUniqueConflicts", "TestUniqueRepeats", "TestUniqueScopes"]
