"""The reference model: the semantics of a store, in dicts and integers.

It is synchronous and deterministic, does no I/O and draws no random numbers; time is an integer that its owner
advances. A store is correct if no sequence of verbs distinguishes it from this model. Where the port leaves a choice
open, the model makes one, and comparisons must not depend on it.

- `records`: the state of a job, a lease and a worker.
- `model`: the verbs of a job's life under a lease.
- `maintenance`: the verbs without a lease: promote, rescue, prune and operator actions.
- `views`: what lists and details show.
- `streams`: the same for events, consumers and shares.
- `backend`: the model behind the port, so that it passes the conformance suite like any store.
"""

from __future__ import annotations

from holdfast.testing.reference.backend import ReferenceBackend
from holdfast.testing.reference.model import Reference
from holdfast.testing.reference.streams import StreamReference

__all__ = ["Reference", "ReferenceBackend", "StreamReference"]
