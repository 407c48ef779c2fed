"""The reference model for streams: what a store means that keeps them, in dicts, lists and integers.

Like the model for jobs it is synchronous and deterministic, does no I/O, and its time is an integer that its owner
moves. Each module adds the verbs of one theme to those below it.

- `records` - what is kept, and the questions that several verbs ask of it.
- `events` - append, read, trim.
- `consumption` - subscribe, and the life of a position under a grant.
- `operators` - what people do to consumers.
- `allocation` - nodes, leadership, and who owns what.
- `views` - what people and the allocator see.
- `backend` - the model behind the port.
"""

from __future__ import annotations

from holdfast.testing.reference.streams.allocation import StreamReference
from holdfast.testing.reference.streams.backend import ReferenceStreams

__all__ = ["ReferenceStreams", "StreamReference"]
