"""What a server exports about the store: by the stored jobs, with a fixed number of calls."""

from __future__ import annotations

import asyncio
import gc
import json
import re
import shutil
import subprocess
import weakref
from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml
from msgspec.structs import replace
from prometheus_client import CollectorRegistry, generate_latest
from tests.servers.missing import give_up
from tests.telemetry.samples import Samples

from holdfast import App, Event
from holdfast.errors import ConfigError, StoreUnavailable
from holdfast.reports.states import worker_state
from holdfast.store.values import ClaimRequest, WorkerHeartbeat, WorkerView
from holdfast.store.verbs.explain import worker_fact
from holdfast.telemetry.backlog import backlog
from holdfast.telemetry.exposition import render
from holdfast.telemetry.families import MOST_NAMES, JobFamilies
from holdfast.telemetry.store_collector import StoreCollector
from holdfast.telemetry.store_figures import FigureReader, StoreFigures, figures_of
from holdfast.testing.debian_packages import unpacked

DEPLOY = Path(__file__).parents[2] / "deploy"
ALERTS = DEPLOY / "prometheus" / "alerts.yml"
OWN = re.compile(r"\bholdfast_\w+")


def defined(app: App) -> None:
    """Register a task, a schedule and a consumer."""

    @app.task(queue="orders", max_attempts=1)
    async def charge(order_id: int) -> None: ...

    @app.schedule(every=timedelta(hours=1), name="report")
    async def report() -> None: ...

    @app.consumer("billing", category="companies")
    async def bill(event: Event) -> None: ...


async def filled(app: App) -> None:
    """Leave three ready jobs, one running job, a schedule, and two events of a consumer."""
    defined(app)
    lease = timedelta(seconds=30)
    for number in range(4):
        await app.enqueue("charge", number)
    await app.backend.jobs.claim(ClaimRequest(worker_id="w", tasks=("charge",), limit=1, lease=lease))
    await app.schedules.add("nightly", "charge", "0 3 * * *", args=[1])
    await app.category("companies", partitions=2)
    for consumer in app.subscribed:
        await app.backend.streams.consumers.subscribe(consumer.name, consumer.subscription, consumer.start)
    for stream in ("a", "b"):
        await app.append("companies", stream=stream, name="renamed")


async def test_the_metrics_of_the_store_say_what_is_stored(on_each_store: App):
    app = on_each_store
    await filled(app)
    samples = Samples(await render(app, None))

    assert samples.value("holdfast_store_up") == 1
    assert samples.value("holdfast_schema_version") == await app.backend.schema.check()
    assert samples.value("holdfast_build_info") == 1
    assert samples.value("holdfast_queue_jobs", queue="orders", state="ready") == 3
    assert samples.value("holdfast_queue_jobs", queue="orders", state="running") == 1
    assert samples.value("holdfast_queue_jobs", queue="orders", state="failed") == 0
    assert samples.value("holdfast_queue_oldest_ready_seconds", queue="orders") >= 0
    assert samples.value("holdfast_queue_workers", queue="orders") == 0
    assert samples.value("holdfast_schedule_missed_total", schedule="nightly") == 0
    lags = [one.value for one in samples.all if one.name == "holdfast_consumer_lag_events"]
    assert sum(lags) == 2
    assert samples.value("holdfast_allocation_generation", consumer="billing", partition="0") >= 0


async def test_the_number_of_store_calls_does_not_depend_on_the_backlog_and_is_cached(app: App, monkeypatch):
    defined(app)
    calls: Counter[str] = Counter()
    parts = {"insight": ("queues", "workers"), "schema": ("check",), "schedules": ("list",)}
    for part, names in parts.items():
        for name in names:
            original = getattr(getattr(app.backend, part), name)

            def counted(*args, original=original, name=name, **kwargs):
                calls[name] += 1
                return original(*args, **kwargs)

            monkeypatch.setattr(getattr(app.backend, part), name, counted)
    await render(app, None)
    first = calls.copy()
    for number in range(200):
        await app.enqueue("charge", number)
    await asyncio.gather(*(render(app, None) for _ in range(5)), backlog(app, "orders"))

    assert first == {"queues": 1, "workers": 1, "check": 1, "list": 1}
    assert calls == first  # the figures of the first call are still fresh
    await FigureReader(app).read()
    assert calls == dict.fromkeys(first, 2)


async def test_the_number_of_series_is_bounded_whatever_the_store_holds(app: App):
    await filled(app)
    figures = await figures_of(app)

    def many(view: Any) -> list[Any]:
        return [replace(view, name=f"n{number}") for number in range(MOST_NAMES + 50)]

    (consumer,) = figures.consumers
    shares = tuple(
        replace(share, share=replace(share.share, consumer=f"c{number}"))
        for number in range(MOST_NAMES)
        for share in consumer.shares
    )
    crowded = replace(
        figures,
        queues=many(figures.queues[0]),
        schedules=many(figures.schedules[0]),
        consumers=[replace(consumer, shares=shares)],
    )
    for name, found in Counter(
        one.name for family in StoreCollector(crowded).collect() for one in family.samples
    ).items():
        assert found <= MOST_NAMES * (5 if name == "holdfast_queue_jobs" else 1), name


async def test_an_app_that_was_scraped_and_closed_is_freed(tmp_path):
    app = App(f"sqlite:///{tmp_path / 'other.db'}?synchronous=normal")
    async with app:
        await render(app, None)
    app.portal.close()
    freed = weakref.ref(app)
    del app
    gc.collect()

    assert freed() is None


async def test_without_the_store_the_metrics_still_come_and_say_so(app: App, monkeypatch):
    async def fail(*_: object, **__: object) -> None:
        raise StoreUnavailable("connection refused")

    monkeypatch.setattr(app.backend.insight, "queues", fail)
    samples = Samples(await render(app, None))

    assert samples.value("holdfast_store_up") == 0
    assert "holdfast_queue_jobs" not in samples.names()
    with pytest.raises(StoreUnavailable, match="connection refused"):
        await backlog(app, "orders")


async def test_a_schedule_that_no_worker_fires_is_counted_as_missed_once(app: App, monkeypatch):
    await filled(app)
    (view,) = await app.schedules.list()

    async def overdue(*_: object) -> list[object]:
        return [type(view)(**{**{f: getattr(view, f) for f in view.__struct_fields__}, "overdue": timedelta(hours=1)})]

    monkeypatch.setattr(app.backend.schedules, "list", overdue)
    reader = FigureReader(app, kept_for=0)
    for _ in range(3):
        figures = await reader.read()

    assert figures.missed == {"nightly": 1}


@pytest.mark.parametrize("silent", [0, 20, 30, 31])
def test_a_worker_is_live_in_the_figures_if_and_only_if_it_is_so_in_lists(silent: int):
    heartbeat = WorkerHeartbeat("w", "host", 1, None, 10, timedelta(seconds=30), 0)
    view = WorkerView(heartbeat, datetime(2026, 1, 1, tzinfo=UTC), timedelta(seconds=silent))

    assert [worker_state(live) for live in StoreFigures(workers=[view]).live] == (["live"] if silent <= 30 else [])
    assert worker_fact(view).is_live is (worker_state(view) == "live")


async def test_the_backlog_says_how_many_workers_the_work_of_a_queue_takes(app: App):
    await filled(app)

    found = await backlog(app, "orders")
    assert (found.ready, found.running, found.workers_wanted) == (3, 1, 1)
    assert found.oldest_ready_seconds >= 0
    assert (await backlog(app, "orders", jobs_per_worker=3)).workers_wanted == 2
    assert (await backlog(app, "unknown")).workers_wanted == 0
    with pytest.raises(ConfigError, match="at least 1"):
        await backlog(app, "orders", jobs_per_worker=0)


async def test_only_running_jobs_of_a_paused_queue_want_workers(app: App):
    await filled(app)
    await app.queues.pause("orders")

    assert (await backlog(app, "orders", jobs_per_worker=1)).workers_wanted == 1
    assert (await figures_of(app)).error is None


# --- what is built on the metrics -------------------------------------------------------------------------------------


async def exported(app: App) -> set[str]:
    """Return the names of all families, and of their samples."""
    registry = CollectorRegistry(auto_describe=False)
    JobFamilies(registry)
    await filled(app)
    text = (await render(app, registry)).decode()
    families = set(re.findall(r"^# TYPE (\w+) (?!histogram)", text, re.MULTILINE))
    histograms = re.findall(r"^# TYPE (\w+) histogram", text, re.MULTILINE)
    return families | {name + end for name in histograms for end in ("_bucket", "_count", "_sum")}


async def test_every_metric_of_the_dashboard_and_the_alerts_exists(app: App):
    known = await exported(app)
    panels = json.loads((DEPLOY / "grafana" / "holdfast.json").read_text(encoding="utf-8"))["panels"]
    asked = [target["expr"] for panel in panels for target in panel.get("targets", ())]
    groups = yaml.safe_load(ALERTS.read_text(encoding="utf-8"))["groups"]
    asked += [rule["expr"] for group in groups for rule in group["rules"]]
    scaled = yaml.safe_load_all((DEPLOY / "kubernetes" / "scaledobject.yml").read_text(encoding="utf-8"))
    triggers = [trigger["metadata"] for one in scaled for trigger in one["spec"].get("triggers", ())]
    asked += [trigger["query"] for trigger in triggers if "query" in trigger]

    used = {name for expression in asked for name in OWN.findall(expression)}
    assert len(used) > 20
    assert used - known == set()


def promtool() -> str:
    """Return the program, which Debian has in the package of Prometheus."""
    try:
        return shutil.which("promtool") or str(unpacked("prometheus") / "usr/bin/promtool")
    except ConfigError as error:
        give_up("promtool", str(error))


@pytest.mark.slow
async def test_promtool_accepts_the_rules_and_the_metrics(app: App):
    await filled(app)
    registry = CollectorRegistry(auto_describe=False)
    JobFamilies(registry)
    exposition = await render(app, None) + generate_latest(registry)
    for words, given in ((("rules", ALERTS), b""), (("metrics",), exposition)):
        command = [promtool(), "check", *map(str, words)]
        checked = await asyncio.to_thread(subprocess.run, command, input=given, capture_output=True, check=False)
        assert checked.returncode == 0, (checked.stderr + checked.stdout).decode()
