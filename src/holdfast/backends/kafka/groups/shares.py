"""The shares that Kafka has assigned to this process: what every commit and every fetch asks first.

```text
   assigned ──▶ GRANTED ── revoked ──▶ REVOKING ── released, or its deadline passes ──▶ gone
                   └────────── lost: the group continues without this member ──────────▶ gone
```

A share that is gone takes no commit, although the broker would accept one from any member.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Collection
from datetime import timedelta

from holdfast.backends.kafka.buffers import PartitionBuffer
from holdfast.model.allocation import Grant, Share, ShareState
from holdfast.store.stream_values import OwnedShare


class HeldShare:
    """One share: its grant, the records read ahead, and the committed position."""

    def __init__(self, grant: Grant, buffer: PartitionBuffer, position: int) -> None:
        self.grant = grant
        self.buffer = buffer
        self.position = position
        self.state = ShareState.GRANTED
        self.deadline: float | None = None

    def owned(self, now: float) -> OwnedShare:
        """Return what a heartbeat is answered with."""
        left = None if self.deadline is None else timedelta(seconds=max(0.0, self.deadline - now))
        return OwnedShare(self.grant, self.state, left)


class GroupShares:
    """The shares of all consumers of this process; safe in threads."""

    def __init__(self) -> None:
        self._held: dict[Share, HeldShare] = {}
        self._changed = threading.Condition()

    def add(self, held: HeldShare) -> None:
        """Begin a share."""
        with self._changed:
            self._held[held.grant.share] = held

    def live(self, grant: Grant) -> HeldShare | None:
        """Return the share of a grant, or None if it is stale."""
        held = self._held.get(grant.share)
        return held if held is not None and held.grant == grant else None

    def owned(self) -> tuple[OwnedShare, ...]:
        """Return the shares in order."""
        now = time.monotonic()
        with self._changed:
            return tuple(self._held[share].owned(now) for share in sorted(self._held))

    def release(self, grant: Grant) -> bool:
        """End a share after its last commit; False if it has ended already."""
        with self._changed:
            is_live = self.live(grant) is not None
            if is_live:
                del self._held[grant.share]
                self._changed.notify_all()
            return is_live

    def revoke(self, shares: Collection[Share], within: float) -> None:
        """Ask for the release of shares."""
        with self._changed:
            for share in shares:
                held = self._held.get(share)
                if held is not None:
                    held.state, held.deadline = ShareState.REVOKING, time.monotonic() + within

    def wait_released(self, shares: Collection[Share], within: float) -> bool:
        """Wait until shares are released; False if some are not in time."""
        with self._changed:
            return self._changed.wait_for(lambda: not any(share in self._held for share in shares), within)

    def lose(self, shares: Collection[Share]) -> None:
        """End shares at once: nothing more is committed for them."""
        with self._changed:
            for share in shares:
                self._held.pop(share, None)
            self._changed.notify_all()

    def of(self, consumer: str) -> list[Share]:
        """Return the shares of a consumer."""
        with self._changed:
            return [share for share in self._held if share.consumer == consumer]
