"""The reference model: what a store means, in dicts and integers.

It is synchronous and deterministic, does no I/O and draws no random numbers; time is an integer that its owner moves.
A store is right when no sequence of verbs tells it from this model. Where the port leaves a choice open the model takes
one; comparisons must not depend on it.

- `records` - what is kept of a job, a lease and a worker.
- `model` - the verbs of a job's life under a lease.
- `upkeep` - the verbs that nobody's lease covers: promote, rescue, prune, and a person's word.
- `views` - what people see.
- `streams` - the same for events, consumers and allocation.
- `backend` - the model behind the port, so that the conformance suite holds it to the same sentences as any store.
"""

from __future__ import annotations

from holdfast.testing.reference.backend import ReferenceBackend
from holdfast.testing.reference.model import Reference
from holdfast.testing.reference.streams import StreamReference

__all__ = ["Reference", "ReferenceBackend", "StreamReference"]
