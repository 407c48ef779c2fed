"""How long a rescuer waits before it takes an expired lease: the ratios that every store applies.

An expired lease has two possible causes: its worker is dead, or its worker could not reach the store. A healthy worker
extends its leases at half their duration, so waiting distinguishes the two cases:

```text
   store access returns                    the rescuer may take leases that are still expired
   │                                       │
   ├───────────── lease / 2 ───────────────┤
   │  healthy workers extend their leases  │
```

Both ratios are divisors, because a store compares integers: `RESCUE_ACCESS_PARTS * access >= lease`.
`runtime.reachability` explains how access is measured.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Final

from holdfast.model.instants import span_micros

RESCUE_ACCESS_PARTS: Final = 2
"""A rescuer needs unbroken access to the store for at least `lease / RESCUE_ACCESS_PARTS`."""

LATE_PARTS: Final = 4
"""A call that took longer than `lease / LATE_PARTS` breaks access: meanwhile workers may have been unable to extend.

A rescue that waited this long for a lock or for the network therefore leaves the lease alone.
"""

MAX_EXTEND_AT: Final = 0.55
"""The latest extension, as a fraction of the lease.

Above it, a writer that blocks the store for `lease / LATE_PARTS` can delay an extension until after a rescue.
"""

GOOD_FOR: Final = 0.75
"""The fraction of a lease after which no handler is begun under it: its extension is long overdue."""

EXTENSION_PARTS: Final = 8
"""An extension that takes longer than `lease / EXTENSION_PARTS` is cancelled, so that another attempt is in time."""

NODE_HEARTBEAT_PARTS: Final = 4
"""This many heartbeats of a node fit into the time after which it fences itself: one may be cancelled without harm."""

SILENCE: Final = 2
"""A server that has not answered after this many times the timeout, and a second at least, is unreachable."""

RESCUE_PARTS: Final = 8
RESCUE_PARTS_AT_LEAST: Final = 5
"""A worker looks for expired leases every `lease / RESCUE_PARTS`, and at least every `lease / RESCUE_PARTS_AT_LEAST`.

Each look keeps its access unbroken; a gap of `lease / LATE_PARTS` would end it.
"""

TRANSACTION_PARTS: Final = 3
"""A handler's transaction may last `lease / TRANSACTION_PARTS`."""

LOCKED_PARTS: Final = 2
"""A lock on an expired lease that is older than `lease / LOCKED_PARTS` is not held by a handler within its limit."""

HEARTBEAT_PARTS: Final = 2
HEARTBEAT_AT_MOST: Final = timedelta(seconds=10)
"""A worker sends a heartbeat at least that often, and at least every `lease / HEARTBEAT_PARTS`."""

_HEARTBEAT_SLACK: Final = timedelta(seconds=1)

OVERDUE_AT_MOST: Final = HEARTBEAT_AT_MOST + _HEARTBEAT_SLACK
"""After that the heartbeat of a dead worker is overdue, however long its leases."""

FORGET_WORKER_AFTER: Final = timedelta(days=1)
"""A worker that has sent no heartbeat for so long is dropped from the list of workers."""


def longest_covered(access: timedelta | None) -> int | None:
    """Return the longest lease, in microseconds, for which this much access suffices; None for every lease."""
    return None if access is None else RESCUE_ACCESS_PARTS * span_micros(access)


def is_silent(silent: timedelta, lease: timedelta) -> bool:
    """Return whether a worker has sent no heartbeat for a whole lease, so that it no longer counts as live."""
    return silent > lease


def is_overdue(silent: timedelta, lease: timedelta) -> bool:
    """Return whether a worker with leases of this duration should have sent a heartbeat by now."""
    return silent > min(lease / HEARTBEAT_PARTS, HEARTBEAT_AT_MOST) + _HEARTBEAT_SLACK
