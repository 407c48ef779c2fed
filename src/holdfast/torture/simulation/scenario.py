"""The scenario of a seed: workers, jobs and faults, all drawn before the first step.

A scenario is a plain value, so that a failing one can be shrunk and run again.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum

from holdfast.model.job import NewJob
from holdfast.torture.simulation.network import Rates
from holdfast.torture.simulation.world import SECOND
from holdfast.worker.settings import WorkerConfig

QUEUES = ("amber", "blue")
ORDER_KEYS = ("east", "west")
TASK = "work"


class Kind(StrEnum):
    """Where a handler runs, and how it completes its job."""

    LOOP = "loop"
    THREAD = "thread"
    TRANSACTION = "transaction"  # `async with ctx.transaction()`: effect and completion together
    USING = "using"  # `ctx.complete(using=...)`: in the caller's own transaction


class Act(StrEnum):
    """What a handler does at the end of one attempt."""

    RETURN = "return"
    RAISE = "raise"
    SNOOZE = "snooze"
    CANCEL = "cancel"
    CRASH = "crash"  # kills its process
    BLOCK = "block"  # blocks the event loop all the time, then returns


@dataclass(frozen=True, slots=True)
class SimulatedAttempt:
    """One attempt: its duration (microseconds) and its end."""

    takes: int
    act: Act


@dataclass(frozen=True, slots=True)
class SimulatedWork:
    """A job to be enqueued, and what its handler does at each attempt; the last is repeated."""

    at: int
    new: NewJob
    kind: Kind
    attempts: tuple[SimulatedAttempt, ...]
    swallows: bool = False  # its handler ignores an abort

    def attempt(self, number: int) -> SimulatedAttempt:
        """Return what the handler does at its `number`th attempt."""
        return self.attempts[min(number, len(self.attempts)) - 1]


class SimulatedFault(StrEnum):
    """The kinds of faults and operator actions."""

    CRASH = "crash"
    FREEZE = "freeze"  # the whole process is suspended, and resumed later
    BLOCK = "block"  # the event loop is blocked, other threads continue
    CUT = "cut"  # one process cannot reach the store
    OUTAGE = "outage"  # no process can
    HELD = "held"  # one writer holds the store; reads continue
    STOP = "stop"  # a worker is asked to drain
    STOP_TWICE = "stop twice"  # and then to release everything
    WAKE_TO_STOP = "wake to stop"  # it is frozen and asked to stop meanwhile: that is the first event it receives
    STANDSTILL = "standstill"  # a worker's clock stops
    LEAP = "leap"  # a worker's clock leaps ahead
    STORE_CLOCK = "store clock"  # the store's clock is stepped
    CANCEL = "cancel"  # the rest are operator actions
    RETRY = "retry"
    PAUSE = "pause"
    RESET = "reset"
    RESCUE = "rescue"


@dataclass(frozen=True, slots=True)
class ScheduledFault:
    """A fault: when, upon what (an index among the workers or jobs), and for how long (microseconds)."""

    at: int
    fault: SimulatedFault
    target: int
    lasts: int


@dataclass(frozen=True, slots=True)
class SimulatedSeat:
    """A worker: its settings, its clock, and whether it has a supervisor."""

    settings: WorkerConfig
    rate: float
    offset: float
    supervised: bool
    queues: tuple[str, ...] | None


@dataclass(frozen=True, slots=True)
class Scenario:
    """Everything that a seed decides."""

    seed: int
    lease: float
    seats: tuple[SimulatedSeat, ...]
    works: tuple[SimulatedWork, ...]
    events: tuple[ScheduledFault, ...]
    rates: Rates
    span: int
    """Microseconds within which jobs are enqueued and faults occur."""


def draw(seed: int) -> Scenario:
    """Return the scenario of a seed."""
    rng = random.Random(f"scenario {seed}")  # noqa: S311 - a simulation must be repeatable
    lease = rng.choice((2.0, 3.0, 6.0))
    leases = rng.randint(3, 5)
    span = int(lease * leases * SECOND)
    seats = tuple(_draw_seat(rng, lease, serves_all=not index) for index in range(rng.choice((3, 3, 3, 4))))
    works = tuple(_draw_work(rng, number, lease, span) for number in range(rng.randint(12, 26)))
    events = [_draw_event(rng, lease, span) for _ in range(rng.randint(2, 14))]
    rates = Rates(
        trouble=rng.choice((0.0, 0.02, 0.1, 0.25)),
        keeper_trouble=rng.choice((0.0, 0.0, 0.02, 0.25)),
        lost_notifications=rng.choice((0.0, 0.3, 1.0)),
        stale_reads=rng.choice((0.0, 0.3, 0.8)),
        oldest=lease * rng.choice((0.05, 0.5, 2.0)),
    )
    events += [_draw_retry_after_cancel(rng, event, lease) for event in events if event.fault is SimulatedFault.CANCEL]
    return Scenario(seed, lease, seats, works, tuple(sorted(events, key=lambda event: event.at)), rates, span)


def _draw_seat(rng: random.Random, lease: float, *, serves_all: bool) -> SimulatedSeat:
    tiny = rng.random() < 0.2  # noqa: PLR2004 - limits of 1 show what batches hide
    settings = WorkerConfig(
        concurrency=rng.choice((1, 2, 4)),
        lease=lease * rng.choice((1.0, 1.0, 1.0, 2.0)),
        extend_at=rng.choice((0.3, 0.4, 0.5, 0.5)),  # a later one leaves less time than a rescuer may be blind
        poll_interval=lease * rng.choice((0.1, 0.2)),
        prefetch_max=rng.choice((0, 3, 1000)),
        batch_max=1 if tiny else rng.choice((3, 500)),
        flush_rows=1 if tiny else rng.choice((2, 500)),
        flush_after=rng.choice((0.005, 0.005, lease * 0.2)),
        release_timeout=lease * rng.choice((0.1, 0.5, 3.0)),
        drain_timeout=lease * rng.choice((0.1, 0.5, 2.0)),
        abort_grace=lease * rng.choice((0.05, 0.2)),
        until_empty=rng.random() < 0.15,  # noqa: PLR2004
        promote_every=lease * 0.2,
        prune_every=lease * 3,
        promote_limit=rng.choice((1, 3, 1000)),
        rescue_limit=rng.choice((1, 2, 200)),
    )
    return SimulatedSeat(
        settings,
        rate=rng.choice((0.95, 0.99, 1.0, 1.0, 1.01, 1.05)),
        offset=rng.random() * 1e6,
        supervised=rng.random() < 0.5,  # noqa: PLR2004
        queues=None if serves_all else rng.choice((None, None, QUEUES[:1])),
    )


_ENDS = (
    (Act.RETURN,),
    (Act.RETURN,),
    (Act.RETURN,),
    (Act.RETURN,),
    (Act.RAISE, Act.RETURN),
    (Act.RAISE, Act.RAISE, Act.RAISE, Act.RETURN),
    (Act.RAISE,),
    (Act.SNOOZE, Act.RETURN),
    (Act.SNOOZE, Act.RAISE, Act.RETURN),
    (Act.CANCEL,),
    (Act.CRASH, Act.RETURN),
    (Act.CRASH,),
    (Act.BLOCK,),
)
_WEIGHTS = (8, 8, 8, 8, 3, 2, 2, 2, 1, 1, 1, 1, 2)


def _draw_work(rng: random.Random, number: int, lease: float, span: int) -> SimulatedWork:
    kind = rng.choice((Kind.LOOP, Kind.LOOP, Kind.THREAD, Kind.TRANSACTION, Kind.TRANSACTION, Kind.USING))
    acts = rng.choices(_ENDS, _WEIGHTS)[0]
    delayed = rng.random() < 0.15  # noqa: PLR2004
    new = NewJob(
        id=f"job-{number:02}",
        queue=QUEUES[rng.random() < 0.3],  # noqa: PLR2004
        task=TASK,
        payload="{}",
        priority=rng.choice((0, 0, 0, 0, 1, -1)),
        max_attempts=rng.choice((1, 2, 3, 5)),
        timeout=lease * 0.5 if rng.random() < 0.1 else None,  # noqa: PLR2004
        delay=timedelta(seconds=lease * rng.random() * 2) if delayed else None,
        order_key=rng.choice(ORDER_KEYS) if rng.random() < 0.25 else None,  # noqa: PLR2004
    )
    burst = rng.random() < 0.6  # noqa: PLR2004 - most come at once, so that workers have a backlog
    at = int(rng.random() * (span * 0.05 if burst else span * 0.7))
    attempts = tuple(SimulatedAttempt(_draw_duration(rng, lease), act) for act in acts)
    return SimulatedWork(at, new, kind, attempts, swallows=rng.random() < 0.1)  # noqa: PLR2004


def _draw_duration(rng: random.Random, lease: float) -> int:
    share = rng.random()
    if share < 0.3:  # noqa: PLR2004
        return 0
    longest = 0.1 if share < 0.7 else 0.6 if share < 0.9 else 2.5  # noqa: PLR2004
    return int(rng.random() * longest * lease * SECOND) + 1


_FAULTS = tuple(SimulatedFault)
_ODDS = (3, 4, 2, 2, 4, 2, 2, 1, 2, 1, 1, 1, 3, 3, 1, 1, 1)


def _draw_event(rng: random.Random, lease: float, span: int) -> ScheduledFault:
    fault = rng.choices(_FAULTS, _ODDS)[0]
    lasts = int(rng.choice((0.2, 0.6, 1.5, 3.0)) * rng.random() * lease * SECOND)
    return ScheduledFault(int(rng.random() * span * 0.9), fault, rng.randrange(1000), lasts)


def _draw_retry_after_cancel(rng: random.Random, cancel: ScheduledFault, lease: float) -> ScheduledFault:
    """Let the operator that cancelled a job retry it soon after: what is known of it is stale then."""
    return ScheduledFault(cancel.at + int(rng.random() * 0.4 * lease * SECOND), SimulatedFault.RETRY, cancel.target, 0)
