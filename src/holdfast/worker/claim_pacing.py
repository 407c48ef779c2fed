"""When to claim, and how many: the prefetch.

A claim costs the same for one job and for many, so fast handlers need large batches. But a job that waits here cannot
run elsewhere, so slow handlers need none. Both follow from the measured rate at which handlers end: the jobs that will
begin within a quarter of a second are prefetched, and none if a handler takes a second or more.

A claim that prefetches waits until half of them have begun. One for jobs of a limit that may have room again does not
wait for that: otherwise a limit would be used only a few times a second while there are jobs without limits.
"""

from __future__ import annotations

from math import exp

from holdfast.worker.backoff import Backoff
from holdfast.worker.settings import WorkerConfig

HORIZON = 0.25  # seconds of work to prefetch
SOON = 0.01  # seconds in which slots become free that count as free for limited jobs
SLOW = 1.0  # for handlers that take this long nothing is prefetched
SHORTEST_SAMPLE = 0.01
LIMITED_POLL = 0.25  # seconds until a worker looks again for a slot of a limit that another worker may have freed
MEMORY = 0.25  # seconds after which a measurement has lost most of its weight


class EndRate:
    """The rate at which handlers end and the number of running handlers, both smoothed; idle time is left out."""

    __slots__ = ("_at", "_rate", "_running", "_seen")

    def __init__(self) -> None:
        self._at = float("-inf")
        self._seen = 0
        self._rate = 0.0
        self._running = 0.0

    def sample(self, now: float, endings: int, *, running: int) -> None:
        """Measure; `endings` is a running count."""
        span = now - self._at
        idle = not running and endings == self._seen
        if idle or span == float("inf"):
            self._at = now
            return
        if span < SHORTEST_SAMPLE:
            return
        weight = 1.0 - exp(-span / MEMORY) if self._rate else 1.0
        self._rate += weight * ((endings - self._seen) / span - self._rate)
        self._running += weight * (running - self._running)
        self._at = now
        self._seen = endings

    def forget(self) -> None:
        """Discard the measurements: the rate has changed."""
        self._rate = 0.0

    def ahead(self) -> int:
        """Return how many jobs to prefetch beyond the free slots."""
        if self._running >= self._rate * SLOW:
            return 0
        return int(self._rate * HORIZON)

    def soon(self) -> int:
        """Return how many slots become free so soon that limited jobs are claimed for them: one at least."""
        return max(1, int(self._rate * SOON))


class Claims:
    """The decision to claim: one claim in flight, the next at once after a full one, else on notification or poll."""

    __slots__ = ("_backoff", "_hungry", "_is_limited", "_poll_at", "_settings", "in_flight", "pace")

    def __init__(self, settings: WorkerConfig) -> None:
        self._settings = settings
        self._backoff = Backoff()
        self._hungry = True  # jobs are probably ready
        self._is_limited = False  # the last claim passed over jobs that are over a limit
        self._poll_at = float("inf")
        self.in_flight = False
        self.pace = EndRate()

    @property
    def hungry(self) -> bool:
        """Whether a claim is wanted before the next poll."""
        return self._hungry

    def woken(self) -> None:
        """Process a notification; one that arrives while a claim is in flight counts after it."""
        self._hungry = True

    def ahead(self) -> int:
        """Return how many jobs to prefetch, within the limit."""
        return min(self.pace.ahead(), self._settings.prefetch_max)

    def soon(self) -> int:
        """Return for how many slots that are not free yet to claim limited jobs: none if nothing is prefetched."""
        return self.pace.soon() if self.ahead() else 0

    def limit(self, now: float, *, free: int, prefetched: int) -> int:
        """Return how many jobs to claim now, 0 for none; the claim is then in flight."""
        is_called_for = self._is_limited and now >= self._poll_at
        room = 0 if self.in_flight else self._room(free, prefetched, is_called_for=is_called_for)
        if not room or now < self._backoff.until or not (self._hungry or now >= self._poll_at):
            return 0
        self.in_flight = True
        self._hungry = False
        return room

    def _room(self, free: int, prefetched: int, *, is_called_for: bool) -> int:
        ahead = self.ahead()
        if prefetched >= free and 2 * (prefetched - free) >= max(ahead, 1) and not is_called_for:
            return 0  # more than half is still here: wait for a larger batch
        return max(0, min(free + ahead - prefetched, self._settings.batch_max))

    def low(self) -> int:
        """Return the number of prefetched jobs at which to claim more; -1: no claim is wanted now."""
        return self.ahead() // 2 if self._hungry and not self.in_flight else -1

    def due_at(self, *, free: int, prefetched: int) -> float:
        """Return when `limit` will next be above 0 if no event arrives before."""
        if self.in_flight or not self._room(free, prefetched, is_called_for=self._is_limited):
            return float("inf")
        is_due = self._hungry and self._room(free, prefetched, is_called_for=False)
        return max(self._backoff.until, float("-inf") if is_due else self._poll_at)

    def freed(self, now: float) -> None:
        """Process the end of limited jobs of this worker: a limit that has held back others may have room again."""
        if self._is_limited:
            self._poll_at = min(self._poll_at, now)

    def answered(self, now: float, count: int, *, asked: int, limited_for: float | None = None) -> None:
        """Process the number of jobs that a claim returned, and for how long a limit has held back others."""
        self.in_flight = False
        self._backoff.succeeded()
        self._poll_at = now + self._settings.poll_interval
        self._is_limited = limited_for is not None
        if limited_for is not None:
            self._poll_at = min(self._poll_at, now + (LIMITED_POLL if limited_for == float("inf") else limited_for))
        if count >= asked:
            self._hungry = True

    def failed(self, now: float) -> None:
        """Process a failed claim."""
        self.in_flight = False
        self._backoff.failed(now)
        self._hungry = True
