"""Limits of a queue, a task or a key: how many of its jobs run at once, and at what rate they start.

A slot is the lease itself: the running jobs are counted, and no counter is kept. So a slot can neither leak nor be
released twice; an expired lease counts until it is rescued. The rate is kept as one instant, `rate_at`, by the generic
cell rate algorithm: each claimed job moves it one step into the future, and a job may be claimed while it is less than
`burst` steps ahead of the store's clock.

```text
   rate "2/s", burst 3        now
   rate_at before the claim    |·            3 jobs may be claimed
   after three                 |···▶         none for half a second, then one each half second
```
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import msgspec

from holdfast.errors import ConfigError
from holdfast.model.job import LeasedJob

UNBOUNDED = 2**31
_RATE = re.compile(r"(\d{1,9})/(\d{0,9})([smhd])")
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400}
_SECOND = 1_000_000


class Limit(msgspec.Struct, frozen=True):
    """What a queue or a task allows, over all workers.

    `running`: the largest number of jobs at once. `rate`: the largest number of starts in a period, as "100/m" (s, m,
    h, d; also "1/10s"), spread evenly, of which `burst` may come at once. Raises `ConfigError` for a value that is
    not possible.
    """

    running: int | None = None
    rate: str | None = None
    burst: int = 1

    def __post_init__(self) -> None:
        """Check the values."""
        if self.running is None and self.rate is None:
            raise ConfigError('a limit needs running=…, the most jobs at once, or rate=…, as in rate="100/m"')
        if self.running is not None:
            _check_number("running", self.running)
        _check_number("burst", self.burst)
        if self.rate is None and self.burst != 1:
            raise ConfigError('burst=… has no effect without a rate: add one, as in rate="100/m"')
        if self.rate is not None:
            parsed_rate(self.rate)

    def __str__(self) -> str:
        """Return the limit as a list or a log line shows it."""
        parts = [] if self.running is None else [f"{self.running} running"]
        if self.rate is not None:
            parts.append(self.rate if self.burst == 1 else f"{self.rate} burst {self.burst}")
        return ", ".join(parts)


def check_limited(limit: object) -> Limit | None:
    """Return a limit or None as it is; raises `ConfigError` for anything else."""
    if limit is None or isinstance(limit, Limit):
        return limit
    raise ConfigError(f"{limit!r} is not a limit: pass Limit(running=…), Limit(rate=…), or None for no limit")


class StartRate(NamedTuple):
    """A number of jobs in a number of microseconds."""

    jobs: int
    span: int


def parsed_rate(rate: object) -> StartRate:
    """Return the parts of a rate; raises `ConfigError` with the form."""
    found = _RATE.fullmatch(rate) if isinstance(rate, str) else None
    if found is None or not int(found[1]) or found[2].strip("0") == "" != found[2]:
        remedy = 'write jobs per time, as "100/m", "5/s", "1000/h" or "1/10s"'
        raise ConfigError(f"the rate {rate!r} cannot be read: {remedy}")
    return StartRate(int(found[1]), int(found[2] or 1) * _SECONDS[found[3]] * _SECOND)


def shown_rate(rate: StartRate) -> str:
    """Return a rate as it is written."""
    seconds = rate.span // _SECOND
    unit = next(unit for unit in "dhms" if seconds % _SECONDS[unit] == 0)
    times = seconds // _SECONDS[unit]
    return f"{rate.jobs}/{times if times > 1 else ''}{unit}"


def _check_number(what: str, value: object) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value < UNBOUNDED:
        remedy = "pause the queue or task to stop it" if value == 0 else "pass a whole number of at least 1"
        raise ConfigError(f"a limit with {what}={value!r}: {remedy}")


class LimitKey(NamedTuple):
    """What a limit concerns: a queue, a task in all queues, or, of the kind "key", each limit key of a task."""

    kind: str
    name: str


class LimitUse(NamedTuple):
    """A stored limit and its use: a row of the statement `limits`. Instants and spans are microseconds."""

    kind: str
    name: str
    max_running: int | None
    rate_jobs: int | None
    rate_span: int | None
    rate_burst: int | None
    rate_at: int
    running: int
    now: int

    @property
    def key(self) -> LimitKey:
        """What it concerns."""
        return LimitKey(self.kind, self.name)

    @property
    def limit(self) -> Limit:
        """The limit as it was set."""
        rate = None if self.rate_jobs is None else shown_rate(StartRate(self.rate_jobs, self.rate_span or _SECOND))
        return Limit(self.max_running, rate, self.rate_burst or 1)

    @property
    def step(self) -> int:
        """The time between two starts, rounded up: the rate is never exceeded."""
        return 0 if self.rate_jobs is None else -(-(self.rate_span or 0) // self.rate_jobs)

    @property
    def room(self) -> int:
        """How many jobs may be claimed now. Jobs with a limit key are ready only if they may (`model.key_limits`)."""
        if self.kind == "key":
            return UNBOUNDED
        free = UNBOUNDED if self.max_running is None else max(0, self.max_running - self.running)
        if self.rate_jobs is None:
            return free
        ahead = max(self.rate_at - self.now, 0)
        return min(free, max(0, (self.rate_burst or 1) - -(-ahead // self.step)))

    def rate_after(self, taken: int) -> int:
        """Return `rate_at` after the claim of `taken` jobs."""
        return max(self.rate_at, self.now) + taken * self.step

    def wait_after(self, taken: int) -> int | None:
        """Return how long after such a claim the rate allows the next; None if only the end of a job does."""
        if self.max_running is not None and self.max_running <= self.running + taken:
            return None
        if self.rate_jobs is None:  # `rate_at` is that of a rate it had before
            return 0
        return max(0, self.rate_after(taken) - self.now - ((self.rate_burst or 1) - 1) * self.step)


class LanePlace(NamedTuple):
    """A ready job near the front of its lane."""

    turn: int
    seq: int
    lane_id: int


class Shares(NamedTuple):
    """How many jobs to claim from the front of each lane, and the limits that refused a job."""

    by_lane: dict[int, int]
    refused: frozenset[LimitKey]
    is_held_back: bool
    """Whether a job of a limited lane was refused because the claimer has no free slot for it."""


def limits_of(queue: str, task: str) -> tuple[LimitKey, LimitKey, LimitKey]:
    """Return the keys of the limits that a job may have."""
    return LimitKey("queue", queue), LimitKey("task", task), LimitKey("key", task)


def share_out(
    front: Iterable[LanePlace],
    lanes: Mapping[int, tuple[str, str]],
    rooms: Mapping[LimitKey, int],
    *,
    limit: int,
    slots: int,
) -> Shares:
    """Choose jobs by turn, then seq, while the limits of each have room; at most `slots` of limited lanes.

    `lanes` are the queue and task of each lane. The chosen jobs of a lane are always its first.
    """
    left = dict(rooms)
    shares: dict[int, int] = {}
    refused: set[LimitKey] = set()
    is_held_back = False
    chosen = 0
    for place in sorted(front):
        if chosen >= limit:
            break
        concerned = [key for key in limits_of(*lanes[place.lane_id]) if key in left]
        full = [key for key in concerned if not left[key]]
        if full:
            refused.update(full)
            continue
        if concerned and not slots:
            is_held_back = True
            continue
        for key in concerned:
            left[key] -= 1
        slots -= bool(concerned)
        shares[place.lane_id] = shares.get(place.lane_id, 0) + 1
        chosen += 1
    return Shares(shares, frozenset(refused), is_held_back)


def taken_by(keys: Iterable[tuple[str, str]], uses: Sequence[LimitUse]) -> dict[LimitKey, int]:
    """Return how many of the claimed jobs, given by queue and task, each limit concerns."""
    counted = {use.key: 0 for use in uses}
    for queue, task in keys:
        for key in limits_of(queue, task):
            if key in counted:
                counted[key] += 1
    return counted


def concerned_by(jobs: Iterable[LeasedJob], uses: Iterable[LimitUse]) -> frozenset[int]:
    """Return the seqs of the jobs that a limit concerns."""
    keys = {use.key for use in uses}
    return frozenset(job.seq for job in jobs if not keys.isdisjoint(limits_of(job.queue, job.task)))


def next_wait(uses: Iterable[LimitUse], taken: Mapping[LimitKey, int], refused: Iterable[LimitKey]) -> int | None:
    """Return how long until one of the refusing limits allows a claim again by its rate; None if that is not known."""
    refusing = set(refused)
    waits = [use.wait_after(taken.get(use.key, 0)) for use in uses if use.key in refusing]
    return min((wait for wait in waits if wait is not None), default=None)
