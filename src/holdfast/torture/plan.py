"""The plan of a run: number of jobs, faults and their counts, durations; determined by a profile and a seed."""

from __future__ import annotations

import random
from collections.abc import Mapping
from enum import StrEnum
from typing import Final, NamedTuple

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
    SERVER_STOP = "server_stop"
    BROKER = "broker"
    BROKER_STOP = "broker_stop"
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
    Fault.RESTART: "kill -9 of the server, and started again",
    Fault.SERVER_STOP: "the server stopped (PostgreSQL at once, others in order), and started again",
    Fault.BROKER: "kill -9 of the broker that keeps the events, and started again",
    Fault.BROKER_STOP: "the same broker stopped in order, and started again",
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

    def with_more(self, faults: Mapping[Fault, int]) -> Profile:
        """Return the same with other kinds of faults."""
        return msgspec.structs.replace(self, faults={**self.faults, **faults})

    def with_jobs(self, jobs: int) -> Profile:
        """Return the same with another number of jobs, and with more time if they would come too fast."""
        seconds = max(self.seconds, jobs / _MOST_A_SECOND)
        return msgspec.structs.replace(self, jobs=jobs, seconds=seconds, limit=self.limit + seconds - self.seconds)


def faults_of(**counts: int) -> dict[Fault, int]:
    """Return the counts to reach, given by the names of the faults."""
    return {Fault(name): count for name, count in counts.items()}


class Profiles(NamedTuple):
    """The sizes of one kind of run. `release_one_writer` is for a store that has one write lock, which is slower."""

    smoke: Profile
    standard: Profile
    release: Profile
    release_one_writer: Profile

    def of(self, name: str, *, one_writer: bool) -> Profile:
        """Return the profile of this name."""
        if name not in PROFILES:
            raise ConfigError(f"no profile {name!r}; choose one of {', '.join(PROFILES)}")
        is_slow = one_writer and name == "release"
        profile: Profile = getattr(self, f"{name}_one_writer" if is_slow else name)
        return profile


PROFILES: Final = ("smoke", "standard", "release")
_SMOKE: Final = Profile(
    jobs=1500,
    seconds=9.0,
    limit=60.0,  # on a busy machine a failpoint waits long for a worker to reach it
    drain=60.0,
    workers=3,
    producers=2,
    faults=faults_of(
        kill=3, failpoint=2, stop=1, term=1, cut=2, commit=2, statement=2, terminate=1, restart=1, skew=1, snapshot=1
    ),
)
_STANDARD: Final = Profile(
    jobs=120_000,
    seconds=480.0,
    limit=720.0,
    drain=60.0,
    workers=4,
    producers=2,
    faults=faults_of(
        kill=80,
        failpoint=60,
        stop=50,
        term=20,
        cut=100,
        commit=50,
        statement=50,
        terminate=40,
        restart=4,
        server_stop=2,
        skew=8,
        snapshot=3,
    ),
)
_RELEASE: Final = Profile(
    jobs=1_000_000,
    seconds=1250.0,
    limit=1800.0,
    drain=60.0,
    workers=4,
    producers=2,
    faults=faults_of(
        kill=320,
        failpoint=200,
        stop=205,
        term=40,
        cut=400,
        commit=120,
        statement=120,
        terminate=150,
        restart=21,
        server_stop=7,
        skew=20,
        snapshot=5,
    ),
)
_RELEASE_ONE_WRITER: Final = msgspec.structs.replace(
    _RELEASE,
    jobs=300_000,
    seconds=900.0,
    faults=faults_of(kill=200, failpoint=110, stop=105, term=40, snapshot=5),
)
profile_of = Profiles(_SMOKE, _STANDARD, _RELEASE, _RELEASE_ONE_WRITER).of


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
