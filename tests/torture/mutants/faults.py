"""What is done to the processes of a mutant run, while the producer produces."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any, Final

from tests.torture.mutants.crew import Crew, Seat, send
from tests.torture.mutants.mutant import PULLING

from holdfast.torture.events import FaultBegan, FaultEnded
from holdfast.torture.history import now_us
from holdfast.torture.process_tree import descendants
from holdfast.torture.proxy import When

_ROUNDS = 3
_STOP, _OUTAGE, _BETWEEN = 2.4, 1.6, 1.0  # leases
_STOPS = (1.5, 2.4, 1.8, 1.6)  # the short ones end while another is at work on what was lost
_ENQUEUE = r"\binsert into \S*\bjob\b"
_POINTS = ("after_commit=kill@3", "before_commit=kill@2", "")


@contextmanager
def fault(crew: Crew, kind: str, target: str, **how: Any) -> Generator[None]:
    """Note a fault."""
    number = now_us()
    crew.log.writer.write(FaultBegan(at_us=now_us(), number=number, fault=kind, target=target, **how))
    try:
        yield
    finally:
        crew.log.writer.write(FaultEnded(at_us=now_us(), number=number, fault=kind, target=target))


def rounds(crew: Crew, count: int = _ROUNDS) -> Generator[Seat]:
    """One worker after the other, with some time between."""
    for number in range(count):
        time.sleep(_BETWEEN * crew.lease)  # the schedule
        crew.keep()
        yield crew.seats[number % len(crew.seats)]


def calm(crew: Crew) -> None:
    crew.produce_all()


def stops(crew: Crew) -> None:
    """A worker stands still for longer than its lease; another is there to take its jobs."""
    for seat, leases in zip(rounds(crew, len(_STOPS)), _STOPS, strict=True):
        _stop(crew, seat, leases)
    crew.produce_all()


def crowd(crew: Crew) -> None:
    """All workers stand still until much is waiting, and none of them in the middle of a write: others have to."""
    pids = [pid for seat in crew.seats for pid in (seat.process.pid, *descendants(seat.process.pid))]
    with fault(crew, "stop", "store", stalls=True):
        with _locked(crew):
            for pid in pids:
                send(pid, signal.SIGSTOP)
        crew.produce_all()
        for pid in pids:
            send(pid, signal.SIGCONT)


def short_stops(crew: Crew) -> None:
    """A worker stands still for about as long as its lease runs."""
    for number in range(8):
        time.sleep(0.3 * crew.lease)  # the schedule
        crew.keep()
        _stop(crew, crew.seats[number % 2], 0.7 + 0.05 * number)
    crew.produce_all()


def _stop(crew: Crew, seat: Seat, leases: float) -> None:
    pids = [seat.process.pid, *descendants(seat.process.pid)]
    with fault(crew, "stop", seat.target, stalls=crew.target.one_writer):
        for pid in pids:
            send(pid, signal.SIGSTOP)
        time.sleep(leases * crew.lease)  # the length of the fault
        for pid in pids:
            send(pid, signal.SIGCONT)


def kills(crew: Crew) -> None:
    """A worker is killed; the next one dies at a point of its own."""
    for number, seat in enumerate(rounds(crew)):
        with fault(crew, "kill", seat.target):
            seat.process.kill()
            crew.restart(seat, _POINTS[number % len(_POINTS)])
    crew.produce_all()


def terms(crew: Crew) -> None:
    """Workers are replaced, one after the other."""
    for seat in rounds(crew):
        with fault(crew, "term", seat.target, asks=True):
            seat.process.terminate()
            crew.restart(seat)
    crew.produce_all()


def stopped_terms(crew: Crew) -> None:
    """A worker that stood still for longer than its lease is asked to end before it can look around."""
    for seat in rounds(crew):
        pids = [seat.process.pid, *descendants(seat.process.pid)]
        with fault(crew, "stop", seat.target, stalls=crew.target.one_writer):
            for pid in pids:
                send(pid, signal.SIGSTOP)
            time.sleep(_STOP * crew.lease)  # the length of the fault
        with fault(crew, "term", seat.target, asks=True):
            seat.process.terminate()
            for pid in pids:
                send(pid, signal.SIGCONT)
            crew.restart(seat)
        crew.until_working(seat)
    crew.produce_all()


def cuts(crew: Crew) -> None:
    """Links are cut inside COMMIT, before the server has it and after."""
    proxy = crew.proxy
    assert proxy is not None
    whens: tuple[When, ...] = ("before", "after", "before")
    for when in whens * 8:
        time.sleep(0.35)  # the schedule
        with fault(crew, "commit", "link", detail=when):
            proxy.arm(when)
            proxy.cut_within(1.0)
            proxy.disarm()
    crew.produce_all()


def lost_replies(crew: Crew) -> None:
    """The server has enqueued, and the link is cut before the caller can hear of it."""
    proxy = crew.proxy
    assert proxy is not None
    for _ in range(8):
        with fault(crew, "statement", "link", detail="after"):
            proxy.arm("after", _ENQUEUE, alone=True)
            proxy.cut_within(1.0, alone=True)
            proxy.disarm(alone=True)
        time.sleep(0.2)  # the schedule
    crew.produce_all()


def outage(crew: Crew) -> None:
    """No process can write to the store, for longer than a lease."""
    for _ in rounds(crew):
        with _locked(crew), fault(crew, "outage", "store", total=True):
            time.sleep(_OUTAGE * crew.lease)  # the length of the fault
    crew.produce_all()


@contextmanager
def _locked(crew: Crew) -> Generator[None]:
    with crew.target.connection() as connection:
        if not crew.target.one_writer:  # else it has the lock by now
            connection.execute("set local search_path to holdfast_torture")
            connection.execute("lock table job, running, worker in exclusive mode")
        yield
        connection.rollback()


MIXES: Final[dict[str, Callable[[Crew], None]]] = {
    "calm": calm,
    "killers": calm,  # jobs that kill their worker
    "crowd": crowd,
    "stops": stops,
    "short stops": short_stops,
    PULLING: stops,  # and one of them is a program that claims by itself
    "kills": kills,
    "terms": terms,
    "cuts": cuts,
    "lost replies": lost_replies,
    "outage": outage,
    "stopped terms": stopped_terms,
}
NEED_A_LINK: Final = ("cuts", "lost replies")
"""The mixes for stores that are reached over a network."""
