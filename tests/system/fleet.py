"""Workers that are killed, stopped past their lease and shut down one after another, and traces judged by effects."""

from __future__ import annotations

import random
import signal
import threading
from collections.abc import Callable, Mapping, Sequence
from itertools import cycle
from typing import Any

from tests.system.harness import Program, Workers, eventually
from tests.system.stores import Effect

LEASE = 2.0
PATIENT = {"max_attempts": 100}  # attempts: on a starved machine, transactions expire, too
_STOPPED = 1.25 * LEASE


class Fleet:
    """So many workers; each one that is disturbed is replaced.

    A stopped one goes on when its lease is over, amid the others. Where a store has one write lock, it may keep all of
    them waiting until then.
    """

    def __init__(self, workers: Workers, size: int, *, seed: int, **settings: Any) -> None:
        self._workers = workers
        self._settings = {"concurrency": 3, "poll_interval": 0.05, "lease": LEASE, **settings}
        self._chance = random.Random(seed)
        self._ways = cycle([self._kill, self._stop, self._end])
        self._running = [self._start() for _ in range(size)]
        self._stopped: list[Program] = []
        self._ending: list[Program] = []
        self._resuming: list[threading.Timer] = []

    def _start(self) -> Program:
        return self._workers.start(**self._settings)

    def strike(self) -> None:
        """Disturb one worker: kill it, stop it past its lease, or shut it down, in turn."""
        victim = self._running.pop(self._chance.randrange(len(self._running)))
        next(self._ways)(victim)
        self._running.append(self._start())

    def disturb(self, done: Callable[[], int], total: int, *, rounds: int = 2) -> None:
        """Strike in each way, so many times, whenever another part of the work is done."""
        strikes = 3 * rounds
        for number in range(1, strikes + 1):
            share = number * total // (strikes + 2)
            eventually(lambda: done() >= share, f"{share} of {total} are done", within=40.0)  # noqa: B023
            self.strike()

    def _kill(self, victim: Program) -> None:
        victim.kill()

    def _stop(self, victim: Program) -> None:
        victim.signal(signal.SIGSTOP)
        victim.stopped()
        resume = threading.Timer(_STOPPED, victim.signal, [signal.SIGCONT])
        resume.start()
        self._resuming.append(resume)
        self._stopped.append(victim)

    def _end(self, victim: Program) -> None:
        victim.line("is running on", within=60.0)  # before, it does not know the signal
        victim.signal(signal.SIGTERM)
        self._ending.append(victim)

    def resumed(self) -> None:
        """Wait until all that were stopped go on."""
        for resume in self._resuming:
            resume.join()

    def shut_down(self) -> None:
        """End all with SIGTERM; each ends well."""
        self.resumed()
        for worker in (*self._running, *self._stopped):
            self._end(worker)
        for worker in self._ending:
            assert worker.end(within=60.0) == 0, worker.text


def effective(trace: Sequence[str], pids: Mapping[int, int]) -> list[str]:
    """Return the lines of the attempts that took effect, of `began` or `ended`, a number and a process each.

    `pids` are the processes that wrote the effects, by number. If one tried several times, its last attempt is it.
    """
    last: dict[tuple[str, int], int] = {}
    for place, line in enumerate(trace):
        word, number, pid = line.split()
        if pids[int(number)] == int(pid):
            last[word, int(number)] = place
    return [trace[place] for place in sorted(last.values())]


def writers(jobs: Sequence[str], effects: Sequence[Effect]) -> dict[int, int]:
    """Return the processes that wrote the effects of jobs, by their place among the jobs."""
    by_job = {effect.job_id: effect.pid for effect in effects}
    return {place: by_job[job_id] for place, job_id in enumerate(jobs)}
