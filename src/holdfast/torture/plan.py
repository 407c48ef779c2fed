"""The plan of a run: number of jobs, faults and their counts, durations; determined by a profile and a seed."""

from __future__ import annotations

import random
from collections.abc import Mapping
from enum import StrEnum
from typing import Final

import msgspec

from holdfast.errors import ConfigError

LEASE: Final = 2.0
"""Seconds; short, so that a stop past the lease is cheap."""
_RESCUE_SLACK: Final = 15.0
_MOST_A_SECOND: Final = 800  # jobs: about what two cores manage under faults on PostgreSQL


class Fault(StrEnum):
    """Every kind of fault; each has a module in `holdfast.torture.nemesis`."""

    KILL = "kill"
    FAILPOINT = "failpoint"
    STOP = "stop"
    TERM = "term"
    CUT = "cut"
    COMMIT = "commit"
    STATEMENT = "statement"
    TERMINATE = "terminate"
    RESTART = "restart"
    SKEW = "skew"
    SNAPSHOT = "snapshot"


MEANINGS: Final[Mapping[Fault, str]] = {
    Fault.KILL: "kill -9 of a worker, its children or its supervisor",
    Fault.FAILPOINT: "kill -9 at a named point between claim and commit",
    Fault.STOP: "SIGSTOP past the lease, then SIGCONT",
    Fault.TERM: "SIGTERM, as in a rolling restart",
    Fault.CUT: "connections cut by the proxy",
    Fault.COMMIT: "connections cut inside COMMIT, before or after the server has it",
    Fault.STATEMENT: "connections cut at an autocommitted statement: its request or its reply is lost",
    Fault.TERMINATE: "sessions terminated by the server",
    Fault.RESTART: "the server killed or stopped at once, and started again",
    Fault.SKEW: "workers whose wall clock is off by up to ten minutes",
    Fault.SNAPSHOT: "a snapshot held open",
}


class Profile(msgspec.Struct, frozen=True, kw_only=True):
    """The size of a run on one kind of store.

    `seconds` is the planned duration of the faults, `limit` when they end at the latest, whether or not their counts
    are reached. In the quiet phase `drain` seconds may pass without a job ending until the rest counts as stuck: a slow
    store may take its time. `faults` are the counts to reach.
    """

    jobs: int
    seconds: float
    limit: float
    drain: float
    workers: int
    producers: int
    faults: dict[Fault, int]

    def with_jobs(self, jobs: int) -> Profile:
        """Return the same with another number of jobs, and with more time if they would come too fast."""
        seconds = max(self.seconds, jobs / _MOST_A_SECOND)
        return msgspec.structs.replace(self, jobs=jobs, seconds=seconds, limit=self.limit + seconds - self.seconds)


_SMOKE: Final = Profile(
    jobs=1500,
    seconds=9.0,
    limit=60.0,  # on a busy machine a failpoint waits long for a worker to reach it
    drain=60.0,
    workers=3,
    producers=2,
    faults={
        Fault.KILL: 3,
        Fault.FAILPOINT: 2,
        Fault.STOP: 1,
        Fault.TERM: 1,
        Fault.CUT: 2,
        Fault.COMMIT: 2,
        Fault.STATEMENT: 2,
        Fault.TERMINATE: 1,
        Fault.RESTART: 1,
        Fault.SKEW: 1,
        Fault.SNAPSHOT: 1,
    },
)
_STANDARD: Final = Profile(
    jobs=120_000,
    seconds=480.0,
    limit=720.0,
    drain=60.0,
    workers=4,
    producers=2,
    faults={
        Fault.KILL: 80,
        Fault.FAILPOINT: 60,
        Fault.STOP: 50,
        Fault.TERM: 20,
        Fault.CUT: 100,
        Fault.COMMIT: 50,
        Fault.STATEMENT: 50,
        Fault.TERMINATE: 40,
        Fault.RESTART: 6,
        Fault.SKEW: 8,
        Fault.SNAPSHOT: 3,
    },
)
_RELEASE: Final = Profile(
    jobs=1_000_000,
    seconds=1250.0,
    limit=1800.0,
    drain=60.0,
    workers=4,
    producers=2,
    faults={
        Fault.KILL: 320,
        Fault.FAILPOINT: 200,
        Fault.STOP: 205,
        Fault.TERM: 40,
        Fault.CUT: 400,
        Fault.COMMIT: 120,
        Fault.STATEMENT: 120,
        Fault.TERMINATE: 150,
        Fault.RESTART: 21,
        Fault.SKEW: 20,
        Fault.SNAPSHOT: 5,
    },
)
_RELEASE_ONE_WRITER: Final = msgspec.structs.replace(
    _RELEASE,
    jobs=300_000,
    seconds=900.0,
    faults={
        Fault.KILL: 200,
        Fault.FAILPOINT: 110,
        Fault.STOP: 105,
        Fault.TERM: 40,
        Fault.SNAPSHOT: 5,
    },
)
PROFILES: Final = ("smoke", "standard", "release")


def profile_of(name: str, *, one_writer: bool) -> Profile:
    """Return the profile of this name; with `one_writer` for a store that has one write lock, which is slower."""
    if name == "smoke":
        return _SMOKE
    if name == "standard":
        return _STANDARD
    if name == "release":
        return _RELEASE_ONE_WRITER if one_writer else _RELEASE
    raise ConfigError(f"no profile {name!r}; choose one of {', '.join(PROFILES)}")


class RunPlan(msgspec.Struct, frozen=True, kw_only=True):
    """One run."""

    name: str
    profile: Profile
    seed: int
    lease: float = LEASE

    @property
    def run(self) -> str:
        """The name of the run in its history."""
        return f"{self.name}-{self.seed}"

    @property
    def slowness(self) -> float:
        """How much longer than the default the lease is; timeouts bound by leases scale with it."""
        return max(1.0, self.lease / LEASE)

    @property
    def drain(self) -> float:
        """Seconds without the end of any job, in the quiet phase, after which the rest counts as stuck."""
        return self.profile.drain * self.slowness

    @property
    def limit(self) -> float:
        """Seconds after which the faults end at the latest."""
        return self.profile.limit * self.slowness

    @property
    def recovery(self) -> float:
        """Seconds within which a dead worker's jobs are claimed again; generous: the machine is busy on purpose."""
        return self.lease + _RESCUE_SLACK * self.slowness

    def scaled(self, seconds: float) -> float:
        """Return a timeout scaled to the machine: `seconds` on an idle one, longer in proportion to the lease."""
        return seconds * self.slowness

    def chance(self, *what: object) -> random.Random:
        """Return the random generator of one part of the run; the same for the same seed."""
        return random.Random("/".join(map(str, (self.seed, *what))))  # noqa: S311 - repeatable on purpose
