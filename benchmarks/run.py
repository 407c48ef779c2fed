"""A run: the chosen scenarios on one store, and rivals beside them if wanted."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from datetime import UTC, datetime

import msgspec

from benchmarks import rivals
from benchmarks.bench import Bench, Sizes, Wrong
from benchmarks.record import Peer, Record, Report, machine, report
from benchmarks.scenarios import LACKS, SCENARIOS, chosen
from benchmarks.stores import UnknownStoreError, UnreachableError, store_of
from benchmarks.table import aim_of

__all__ = ["Plan", "UnknownScenarioError", "UnknownStoreError", "UnreachableError", "Wrong", "aim_of", "run"]


class UnknownScenarioError(ValueError):
    """No scenario has such a name."""


class Plan(msgspec.Struct, frozen=True):
    """What to run, and how much of it."""

    url: str | None = None
    jobs: int = 100_000
    repeats: int = 3
    only: tuple[str, ...] = ()
    peers: bool = False
    events: str | None = None
    """The URL of Kafka, for the scenarios of events there."""


@contextmanager
def _cleaning_up() -> Generator[None]:
    """Let SIGTERM end a run as Ctrl-C does: what it has made in the store must be removed.

    A shell lets what it starts in the background ignore Ctrl-C. During a run it has its effect nevertheless: asyncio
    ends its tasks in order only on an interrupt that it has arranged for itself.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    interrupted = signal.getsignal(signal.SIGINT)
    if interrupted is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    terminated = signal.signal(signal.SIGTERM, lambda *_: signal.raise_signal(signal.SIGINT))
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, terminated)
        signal.signal(signal.SIGINT, interrupted)


def run(plan: Plan, log: Callable[[str], None]) -> Report:
    """Run a plan; `log` is called with what begins."""
    with _cleaning_up():
        return _run(plan, log)


def _run(plan: Plan, log: Callable[[str], None]) -> Report:
    os.environ.pop("HOLDFAST_EVENTS_URL", None)  # only the scenarios of Kafka have their events there
    store = store_of(plan.url)
    lacks = LACKS.get(store.name, ())
    scenarios = {name: scenario for name, scenario in chosen(plan.only).items() if not name.startswith(lacks)}
    if not scenarios:
        message = f"no scenario begins with {', '.join(plan.only)}: there are {', '.join(SCENARIOS)}"
        raise UnknownScenarioError(message)
    began = datetime.now(UTC)
    seen = machine(f"{store.name} {store.version}", store.driver)  # before the load is our own
    bench = Bench(store, Sizes.of(plan.jobs), plan.repeats, plan.events)
    records: list[Record] = []
    for name, scenario in scenarios.items():
        log(name)
        records.extend(scenario(bench))
    peers: list[Peer] = []
    if plan.peers:
        compared, peers = rivals.compare(bench, list(scenarios), log)
        records.extend(compared)
    return report(records, peers, jobs=plan.jobs, machine=seen, at=began)
