"""The reference model for streams: the semantics of a store with streams, in dicts, lists and integers.

Like the model for jobs it is synchronous and deterministic, does no I/O, and its time is an integer that its owner
advances. Each module adds the verbs of one theme to those of the module it builds on.

- `records`: the state, and queries that several verbs use.
- `events`: append, read, trim.
- `consumption`: subscribe, and the life of a position under a grant.
- `operators`: operator actions on consumers.
- `allocation`: nodes, leadership and the owners of shares.
- `views`: what lists show, and what the allocator sees.
- `backend`: the model behind the port.
"""

from __future__ import annotations

from holdfast.testing.reference.streams.allocation import StreamReference
from holdfast.testing.reference.streams.backend import ReferenceStreams

__all__ = ["ReferenceStreams", "StreamReference"]
