"""Turns figures of the store into metrics. Only one process should export them: each copy would be added up."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from holdfast.store.stream_values import ConsumerView, ShareView
from holdfast.telemetry.families import MOST_NAMES, VERSION
from holdfast.telemetry.store_figures import StoreFigures

_STATES = ("ready", "scheduled", "blocked", "running", "failed")


class StoreCollector:
    """The metrics of one look at the store, for a registry."""

    def __init__(self, figures: StoreFigures) -> None:
        self._figures = figures

    def collect(self) -> Iterator[Metric]:
        """Yield every metric; those of queues, consumers and schedules only if the store could be read."""
        figures = self._figures
        up = GaugeMetricFamily("holdfast_store_up", "Whether the store can be reached.")
        up.add_metric([], 0.0 if figures.error else 1.0)
        build = GaugeMetricFamily("holdfast_build_info", "The version of Holdfast; always 1.", labels=["version"])
        build.add_metric([VERSION], 1.0)
        yield from (up, build)
        if figures.error is None:
            yield from _schema(figures)
            yield from _queues(figures)
            yield from _schedules(figures)
            yield from _consumers(figures.consumers)


def _schema(figures: StoreFigures) -> Iterator[Metric]:
    version = GaugeMetricFamily("holdfast_schema_version", "The version of the tables.")
    version.add_metric([], float(figures.schema_version or 0))
    yield version


def _queues(figures: StoreFigures) -> Iterator[Metric]:
    jobs = GaugeMetricFamily("holdfast_queue_jobs", "Jobs of a queue in a state.", labels=["queue", "state"])
    oldest = GaugeMetricFamily(
        "holdfast_queue_oldest_ready_seconds", "How long the next job of a queue has been due.", labels=["queue"]
    )
    serving = GaugeMetricFamily("holdfast_queue_workers", "Live workers that serve a queue.", labels=["queue"])
    paused = GaugeMetricFamily("holdfast_queue_paused", "Whether a queue is paused.", labels=["queue"])
    live = [view.heartbeat for view in figures.live]
    for view in figures.queues[:MOST_NAMES]:
        for state in _STATES:
            jobs.add_metric([view.name, state], float(getattr(view, state)))
        oldest.add_metric([view.name], 0.0 if view.oldest_ready is None else view.oldest_ready.total_seconds())
        serving.add_metric([view.name], float(sum(worker.serves(view.name) for worker in live)))
        paused.add_metric([view.name], float(view.paused))
    yield from (jobs, oldest, serving, paused)


def _schedules(figures: StoreFigures) -> Iterator[Metric]:
    last = GaugeMetricFamily(
        "holdfast_schedule_last_tick_timestamp_seconds", "The last time that has fired.", labels=["schedule"]
    )
    overdue = GaugeMetricFamily(
        "holdfast_schedule_overdue_seconds", "How long a schedule has been due without firing.", labels=["schedule"]
    )
    missed = CounterMetricFamily(
        "holdfast_schedule_missed", "Times that were overdue when this process looked.", labels=["schedule"]
    )
    for view in figures.schedules[:MOST_NAMES]:
        if view.last_at is not None:
            last.add_metric([view.name], view.last_at.timestamp())
        overdue.add_metric([view.name], view.overdue.total_seconds() if view.is_overdue else 0.0)
        missed.add_metric([view.name], float(figures.missed.get(view.name, 0)))
    yield from (last, overdue, missed)


def _consumers(consumers: Sequence[ConsumerView]) -> Iterator[Metric]:
    labels = ["consumer", "category", "partition"]
    lag = GaugeMetricFamily("holdfast_consumer_lag_events", "Events that are not handled yet.", labels=labels)
    behind = GaugeMetricFamily("holdfast_consumer_lag_seconds", "Age of the oldest unhandled event.", labels=labels)
    parked = GaugeMetricFamily("holdfast_consumer_parked_events", "Events that are parked.", labels=labels)
    owner = GaugeMetricFamily(
        "holdfast_partition_owner_info", "The node that owns a partition; always 1.", labels=[*labels, "node"]
    )
    generation = GaugeMetricFamily(
        "holdfast_allocation_generation", "How often a partition has changed its owner.", labels=labels
    )
    for share in islice((share for consumer in consumers for share in consumer.shares), MOST_NAMES):
        values = _labels(share)
        lag.add_metric(values, float(share.lag))
        behind.add_metric(values, 0.0 if share.behind is None else share.behind.total_seconds())
        parked.add_metric(values, float(share.parked))
        generation.add_metric(values, float(share.generation))
        if share.owner is not None:
            owner.add_metric([*values, share.owner], 1.0)
    yield from (lag, behind, parked, owner, generation)


def _labels(share: ShareView) -> list[str]:
    return [share.share.consumer, share.share.category, str(share.share.partition_id)]
