"""The checker: reads the history of a run and says which promises did not hold.

```text
   history ─▶ Run (settings, processes, faults, clock) ─┐
           └▶ buckets ─▶ JobHistory, one after another ─┴─▶ invariants ─▶ RunVerdict
```

It believes nobody: what processes thought of themselves is compared with what the store shows in the end, with the
effects that are there, and with what other processes saw. `registry.INVARIANTS` lists what it looks for.
"""

from __future__ import annotations

from holdfast.torture.checker.check import check, check_events, timeline_of
from holdfast.torture.checker.invariant import Invariant
from holdfast.torture.checker.registry import INVARIANTS
from holdfast.torture.checker.verdict import InvariantResult, RunVerdict, Violation

__all__ = [
    "INVARIANTS",
    "Invariant",
    "InvariantResult",
    "RunVerdict",
    "Violation",
    "check",
    "check_events",
    "timeline_of",
]
