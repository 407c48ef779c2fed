"""The metrics of a process that enqueues or runs jobs: names, labels and buckets, in one place.

No label has unbounded values: never a job id, a key or a worker id. `queue` is the queue of a job or, where a call
serves several queues at once (slots, claims, flushes), all queues that the worker serves: `orders,mails`, or `*`.
"""

from __future__ import annotations

from collections.abc import Hashable
from importlib.metadata import version
from typing import Final
from weakref import WeakKeyDictionary

from prometheus_client import REGISTRY, CollectorRegistry, Counter, Gauge, Histogram

VERSION: Final = version("holdfast")
OTHER: Final = "(other)"
MOST_NAMES: Final = 1000
"""Queues, and pairs of a queue and a task, with separate labels; beyond, a queue or a task is `OTHER`."""
_WAITS: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 900, 3600)
_RUNS: Final = (0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 900, 3600)
_CALLS: Final = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5)
_MARGINS: Final = (0, 0.5, 1, 2, 5, 10, 15, 20, 30, 60, 300)


class JobFamilies:
    """The metrics of jobs, for every process."""

    def __init__(self, registry: CollectorRegistry) -> None:
        queue, job = ["queue"], ["queue", "task"]

        def counter(name: str, text: str, labels: list[str]) -> Counter:
            return Counter(f"holdfast_{name}", text, labels, registry=registry)

        def histogram(name: str, text: str, labels: list[str], buckets: tuple[float, ...]) -> Histogram:
            return Histogram(f"holdfast_{name}", text, labels, buckets=buckets, registry=registry)

        def gauge(name: str, text: str) -> Gauge:
            return Gauge(f"holdfast_{name}", text, queue, registry=registry, multiprocess_mode="sum")

        self.enqueued = counter("jobs_enqueued_total", "Jobs that this process has created.", job)
        self.finished = counter("jobs_finished_total", "Attempts that have ended, by outcome.", [*job, "outcome"])
        self.waited = histogram("job_wait_seconds", "Time from when a job was due to its start.", job, _WAITS)
        self.ran = histogram("job_run_seconds", "Time from the start of an attempt to its end.", job, _RUNS)
        self.running = gauge("jobs_running", "Attempts that run now.")
        self.slots = gauge("worker_slots", "How many jobs the workers run at once.")
        self.extended = counter("lease_extend_total", "Leases that were extended.", queue)
        self.lost = counter("lease_lost_total", "Leases that a worker found lost.", [*queue, "reason"])
        self.rescued = counter("rescued_total", "Jobs that were taken from dead workers.", [*queue, "reason"])
        self.margin = histogram("lease_margin_seconds", "Shortest time left when leases were extended.", [], _MARGINS)
        self.claimed = histogram("claim_seconds", "Duration of a claim.", queue, _CALLS)
        self.flushed = histogram("finish_flush_seconds", "Duration of a write of outcomes.", queue, _CALLS)
        self.buffered = gauge("finish_buffer_rows", "Outcomes that are not written yet.")


class ProcessFamilies:
    """What each worker process reports about itself and its store."""

    def __init__(self, registry: CollectorRegistry) -> None:
        def gauge(name: str, text: str, labels: list[str], mode: str) -> Gauge:
            return Gauge(f"holdfast_{name}", text, labels, registry=registry, multiprocess_mode=mode)  # type: ignore[arg-type]

        self.store_up = gauge("store_up", "Whether the store can be reached.", [], "min")
        self.schema_version = gauge("schema_version", "The version of the tables.", [], "max")
        self.build_info = gauge("build_info", "The version of Holdfast; always 1.", ["version"], "max")


class BoundedNames:
    """Label values: at most `MOST_NAMES` different ones."""

    def __init__(self) -> None:
        self._known: set[Hashable] = set()

    def admits(self, name: Hashable) -> bool:
        """Whether a name, or several together, are among those that have a separate label."""
        if len(self._known) < MOST_NAMES:
            self._known.add(name)
        return name in self._known

    def label(self, name: str) -> str:
        """Return the name, or `OTHER` if there are too many."""
        return name if self.admits(name) else OTHER


_made: WeakKeyDictionary[CollectorRegistry, JobFamilies] = WeakKeyDictionary()


def families_of(registry: CollectorRegistry | None = None) -> JobFamilies:
    """Return the metrics in a registry, by default the global one; several apps share them."""
    chosen = REGISTRY if registry is None else registry
    if chosen not in _made:
        _made[chosen] = JobFamilies(chosen)
    return _made[chosen]
