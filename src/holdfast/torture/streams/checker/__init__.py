"""The checker of streams: reads the history of a run and says which promises did not hold.

`STREAM_INVARIANTS` lists what it looks for; `StreamStory` is what they look at.
"""

from __future__ import annotations

from holdfast.torture.streams.checker.check import STREAM_INVARIANTS, check_stream_events, check_streams
from holdfast.torture.streams.checker.owners import recoveries

__all__ = ["STREAM_INVARIANTS", "check_stream_events", "check_streams", "recoveries"]
