"""The progress of one share: pure bookkeeping of handled and committed events.

```text
   committed          done                     fetched
       │               │                          │
   ────┴───────────────┴──────────────────────────┴────▶ position
       handled, but the position is not written yet: the next owner would handle these again
```
"""

from __future__ import annotations

from holdfast.model.event import StoredEvent
from holdfast.model.outcome import Failure
from holdfast.store.stream_values import Commit, Park, Unpark


class ShareProgress:
    """The position of one share, and the events to park with the next commit."""

    def __init__(self, committed: int, *, by_version: bool, commit_every: int) -> None:
        self.committed = committed
        self.done = committed
        self.parked: set[str] = set()
        """The streams that have a parked event; their later events are parked too."""
        self._parks: list[Park] = []
        self._by_version = by_version
        self._commit_every = commit_every
        self._handled = 0

    def place(self, event: StoredEvent) -> int:
        """Return the event's position, or its version for a subscription to one stream."""
        return event.version if self._by_version else event.position

    def follows_parked(self, event: StoredEvent) -> bool:
        """Return whether an earlier event of its stream is parked."""
        return event.stream in self.parked

    def park(self, event: StoredEvent, failure: Failure | None = None, attempts: int = 0) -> None:
        """Park an event with the next commit; its stream is parked from now on."""
        self._parks.append(Park(self.place(event), event.stream, failure, attempts, event))
        self.parked.add(event.stream)
        self.passed(event)

    def passed(self, last: StoredEvent, number: int = 1) -> None:
        """Record that so many events are done, up to the last of them: handled, skipped or parked."""
        self.done = self.place(last)
        self._handled += number

    def passed_to(self, position: int) -> None:
        """Record that no event is left up to a position."""
        self.done = max(self.done, position)

    def commit_up_to(self, event: StoredEvent) -> Commit:
        """Return the commit that covers everything up to an event whose handler is running."""
        return Commit(self.committed, self.place(event), tuple(self._parks))

    def commit_done(self) -> Commit:
        """Return the commit that covers all events that are done."""
        return Commit(self.committed, self.done, tuple(self._parks))

    def commit_unparked(self, position: int, failure: Failure | None, attempts: int) -> Commit:
        """Return the commit for a parked event that was handled again."""
        unparks = (Unpark(position, failure, attempts),)
        return Commit(self.committed, self.done, tuple(self._parks), unparks)

    def commit_trial(self) -> Commit:
        """Return the commit that puts the next event on trial."""
        return Commit(self.committed, self.done, tuple(self._parks), begins_trial=True)

    def committed_to(self, position: int) -> None:
        """Record the committed position."""
        self.committed = position
        self.done = max(self.done, position)
        self._parks.clear()
        self._handled = 0

    @property
    def is_ahead(self) -> bool:
        """Whether an event is done but not committed."""
        return self.done != self.committed or bool(self._parks)

    @property
    def is_due(self) -> bool:
        """Whether enough events are done for a commit."""
        return self._handled >= self._commit_every

    def back_to(self, committed: int) -> None:
        """Continue after the committed position."""
        self.committed = self.done = committed
        self._parks.clear()
        self.parked.clear()
        self._handled = 0
