"""The settings of a worker."""

from __future__ import annotations

import msgspec

from holdfast.errors import ConfigError
from holdfast.model.lease_rules import MAX_EXTEND_AT, RESCUE_PARTS, RESCUE_PARTS_AT_LEAST

FLUSH_AFTER = 0.005


class WorkerConfig(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of one worker; durations in seconds. Raises `ConfigError` for an invalid one.

    `extend_at` is the fraction of the lease after which it is extended.
    `poll_interval` is the pause after a claim that found too few jobs; a notification ends it.
    `prefetch_max` bounds the jobs that wait here beyond the free slots, `batch_max` the jobs of one statement.
    Finishes are written at once when idle, else after `flush_after` or `flush_rows`, whichever is first.
    `release_timeout` is how long prefetched jobs may wait for a slot before they are released for idle workers.
    `drain_timeout` is how long handlers of a stopping worker may run; `abort_grace` how long aborted ones may unwind.
    `rescue_every` None means an eighth of the lease, at most five seconds.
    """

    concurrency: int = 10
    lease: float = 30.0
    extend_at: float = 0.5
    poll_interval: float = 0.5
    prefetch_max: int = 1000
    batch_max: int = 500
    flush_rows: int = 500
    flush_after: float = FLUSH_AFTER
    release_timeout: float = 1.0
    drain_timeout: float = 30.0
    abort_grace: float = 2.0
    until_empty: bool = False
    promote_every: float = 1.0
    rescue_every: float | None = None
    prune_every: float = 60.0
    promote_limit: int = 1000
    rescue_limit: int = 200
    prune_limit: int = 1000

    def __post_init__(self) -> None:
        """Check every value."""
        for name in ("concurrency", "batch_max", "flush_rows", "promote_limit", "rescue_limit", "prune_limit"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name}={getattr(self, name)} is too small: pass at least 1")
        for name in ("lease", "poll_interval", "release_timeout", "promote_every", "prune_every"):
            if not 0 < getattr(self, name) < float("inf"):
                raise ConfigError(f"{name}={getattr(self, name)} is invalid: pass seconds, more than 0")
        for name in ("flush_after", "drain_timeout", "abort_grace", "prefetch_max"):
            if not 0 <= getattr(self, name) < float("inf"):
                raise ConfigError(f"{name}={getattr(self, name)} is invalid: pass 0 or more")
        if not 0 < self.extend_at <= MAX_EXTEND_AT:
            raise ConfigError(
                f"extend_at={self.extend_at} leaves no time to repeat a failed extension: "
                f"pass a fraction of the lease above 0 and up to {MAX_EXTEND_AT}, for example 0.5"
            )
        if not self.flush_after < self.lease * self.extend_at:
            raise ConfigError(self._unsafe_flush())
        slowest = self.lease / RESCUE_PARTS_AT_LEAST
        if self.rescue_every is not None and not 0 < self.rescue_every <= slowest:
            raise ConfigError(
                f"rescue_every={self.rescue_every} does not fit a lease of {self.lease} s: "
                f"pass more than 0 and at most {slowest:g} s, or leave it out"
            )

    def _unsafe_flush(self) -> str:
        """Return which of the two incompatible settings to change, and how."""
        safe = self.lease * self.extend_at
        if self.flush_after <= FLUSH_AFTER:
            return (
                f"lease={self.lease:g} is too short: it would be extended after {safe:g} s, and outcomes "
                f"wait up to flush_after={self.flush_after:g} s: pass more than "
                f"{self.flush_after / self.extend_at:g} s, for example 30"
            )
        example = f", for example {FLUSH_AFTER:g}" if safe > FLUSH_AFTER else ""
        return (
            f"flush_after={self.flush_after:g} is not below the time for which the lease is safe "
            f"({self.lease:g} s x {self.extend_at:g}): pass less than {safe:g} s{example}"
        )

    @property
    def rescue_period(self) -> float:
        """The seconds between two rescues."""
        return min(self.lease / RESCUE_PARTS, 5.0) if self.rescue_every is None else self.rescue_every
