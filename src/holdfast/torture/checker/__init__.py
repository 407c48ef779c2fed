"""The checker: reads the history of a run and reports violated invariants.

```text
   history ─▶ Run (settings, processes, faults, clock) ─┐
           └▶ buckets ─▶ JobHistory, one after another ─┴─▶ invariants ─▶ RunVerdict
```

It trusts no single source: what a process recorded about itself is compared with the final state of the store, with the
committed effects, and with the records of other processes. `registry.INVARIANTS` lists the invariants.
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
