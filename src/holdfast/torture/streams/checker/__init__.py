"""The checker of streams: reads the history of a run and reports violated invariants.

`STREAM_INVARIANTS` lists the invariants; they check a `StreamFacts`.
"""

from __future__ import annotations

from holdfast.torture.streams.checker.check import STREAM_INVARIANTS, check_stream_events, check_streams
from holdfast.torture.streams.checker.owners import recoveries

__all__ = ["STREAM_INVARIANTS", "check_stream_events", "check_streams", "recoveries"]
