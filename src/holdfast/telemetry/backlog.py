"""What an autoscaler such as KEDA asks: how much work a queue has, and how many workers that takes."""

from __future__ import annotations

import math
from typing import Final

import msgspec

from holdfast.app.app import App
from holdfast.errors import ConfigError, StoreUnavailable
from holdfast.model.names import check_name
from holdfast.telemetry.store_figures import StoreFigures, figures_of

_DEFAULT_SLOTS: Final = 10  # of a worker, if none runs that could be asked


class Backlog(msgspec.Struct, frozen=True):
    """The work of one queue now.

    `workers_wanted` is the number of workers that could run all of it at once; 0 if there is none, or if the queue is
    paused and none of it runs.
    """

    queue: str
    ready: int
    running: int
    oldest_ready_seconds: float
    workers_wanted: int


async def backlog(app: App, queue: str, *, jobs_per_worker: int | None = None) -> Backlog:
    """Return the backlog of a queue; an unknown queue has none.

    `jobs_per_worker` is how many jobs one worker is to have; by default as many as its live workers run at once, on
    average. The figures are at most five seconds old. Raises `StoreUnavailable` if the store cannot be read.
    """
    if jobs_per_worker is not None and jobs_per_worker < 1:
        raise ConfigError(f"jobs_per_worker={jobs_per_worker} is too small: pass at least 1")
    figures = await figures_of(app)
    if figures.error is not None:
        raise StoreUnavailable(f"the backlog is unknown: {figures.error}")
    return backlog_of(figures, check_name("queue", queue), jobs_per_worker)


def backlog_of(figures: StoreFigures, queue: str, jobs_per_worker: int | None) -> Backlog:
    """Return the backlog of a queue from figures of the store."""
    view = next((view for view in figures.queues if view.name == queue), None)
    if view is None:
        return Backlog(queue, 0, 0, 0.0, 0)
    work = view.running + (0 if view.paused else view.ready)
    per_worker = jobs_per_worker or _slots(figures, queue)
    oldest = 0.0 if view.oldest_ready is None else max(0.0, view.oldest_ready.total_seconds())
    return Backlog(queue, view.ready, view.running, oldest, math.ceil(work / per_worker))


def _slots(figures: StoreFigures, queue: str) -> float:
    slots = [view.heartbeat.concurrency for view in figures.live if view.heartbeat.serves(queue)]
    return sum(slots) / len(slots) if slots else _DEFAULT_SLOTS
