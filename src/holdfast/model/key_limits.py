"""Limits per key: how many waiting jobs of a key are admitted, and when to look at it again.

An admitted job is ready or running; at most `running` jobs of a key are admitted, so a claim needs no further check. A
slot is freed by whatever ends the attempt: a job that waits for a retry has none. The rate counts starts, as for a
queue or task: a job that is admitted and not yet claimed reserves its start, which is counted at the instant of the
claim when the key is next looked at. So the rate holds for starts, however long a job waited for a worker.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from holdfast.model.limits import LimitUse

MOST_ADMITTED = 1000
"""Jobs of one key that one step admits; the next step follows at once."""
LONGEST_WAIT = 5_000_000
"""Microseconds after which a key whose admitted jobs no worker claims is looked at again."""


class KeyUse(NamedTuple):
    """A key, with its limit and its admitted jobs.

    `use.running` is the number of admitted jobs. `pending`: when those were admitted that are not claimed and whose
    start counts. `starts`: when jobs were claimed whose start is not counted yet. `unrated`: how many were admitted
    before the key had its rate, and are not claimed.
    """

    use: LimitUse
    pending: Sequence[int] = ()
    starts: Iterable[int] = ()
    unrated: int = 0

    def counted(self) -> KeyUse:
        """Count the starts."""
        if self.use.rate_jobs is None:
            return self._replace(starts=())
        rate_at = self.use.rate_at
        for start in sorted(self.starts):
            rate_at = max(rate_at, start) + self.use.step
        return self._replace(use=self.use._replace(rate_at=rate_at), starts=())

    @property
    def room(self) -> int:
        """How many waiting jobs to admit now; the starts are counted."""
        return min(self._reserved().room, MOST_ADMITTED)

    @property
    def excess(self) -> int:
        """How many admitted jobs are to wait again if they are not claimed yet: the limit was set or lowered."""
        use, pending = self.use, len(self.pending)
        over = 0 if use.max_running is None else max(0, use.running - use.max_running)
        if use.rate_jobs is None:
            return over
        return max(over, self.unrated + pending if self.unrated else pending - (use.rate_burst or 1))

    def sent_back(self, number: int) -> KeyUse:
        """Return the key after so many admitted jobs wait again."""
        left = len(self.pending) - max(0, number - self.unrated)
        return self._replace(
            use=self.use._replace(running=self.use.running - number),
            pending=sorted(self.pending)[: max(0, left)],
            unrated=max(0, self.unrated - number),
        )

    def admitted(self, number: int) -> KeyUse:
        """Return the key after so many jobs were admitted."""
        pending = () if self.use.rate_jobs is None else [*self.pending, *[self.use.now] * number]
        return self._replace(use=self.use._replace(running=self.use.running + number), pending=pending)

    def wake_at(self, *, is_waiting: bool) -> int | None:
        """Return when to look at the key without an event; None if an event will come, or there is nothing to do."""
        use = self.use
        if not is_waiting:
            return use.rate_at if not use.running and use.rate_at > use.now else None
        if use.max_running is not None and use.running >= use.max_running:
            return None
        if use.rate_jobs is None:
            return use.now
        burst, pending = use.rate_burst or 1, len(self.pending)
        if pending < burst:
            return max(use.now, use.rate_at + (pending - burst + 1) * use.step)
        waited = min(use.now - min(self.pending), LONGEST_WAIT)
        return use.now + max(waited, max(0, use.rate_at - use.now) + (pending - burst + 1) * use.step)

    @property
    def is_idle(self) -> bool:
        """Whether the key may be forgotten, if no job waits in it."""
        return not self.use.running and self.use.rate_at <= self.use.now

    def _reserved(self) -> LimitUse:
        """Return the use as if the admitted jobs started now."""
        use = self.use
        return use._replace(rate_at=max(use.rate_at, use.now) + len(self.pending) * use.step)
