"""Durations, wherever one is taken: seconds or a timedelta, and nothing else."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from tests.app.stream_work import eventually
from tests.app.work import run_all, working

from holdfast import App, ConfigError, JobState, Retention, Timing

SECOND = timedelta(seconds=1)


async def noop() -> None: ...


@pytest.mark.parametrize("given", [7, timedelta(days=7), "7 days", {"completed": timedelta(days=7)}])
def test_a_retention_that_is_none_is_refused_where_the_app_is_made(given):
    with pytest.raises(ConfigError, match=r"pass Retention\(completed=timedelta\(days=7\)\)"):
        App("sqlite://", retention=given)


async def test_a_worker_prunes_by_the_retention_of_its_app(tmp_path):
    async with App(f"sqlite:///{tmp_path / 'jobs.db'}", retention=Retention(completed=timedelta(0))) as app:
        await app.task(noop).enqueue()

        async def is_pruned() -> bool:
            return not (await app.jobs.list("ready")).jobs and not (await app.jobs.list("completed")).jobs

        async with working(app, prune_every=0.02):
            await eventually(is_pruned)


@pytest.mark.parametrize("given", [1, 1.5, SECOND, {"beat": 1}])
async def test_a_timing_that_is_none_is_refused_with_the_remedy(app: App, given: Any):
    @app.consumer("billing", category="orders")
    async def bill(event: Any) -> None: ...

    with pytest.raises(ConfigError, match=r"pass Timing\(…\), or Timing.for_recovery\(<seconds>\)"):
        app.node(timing=given)


async def test_the_grace_for_stuck_handlers_is_a_duration_like_others(app: App):
    @app.consumer("billing", category="orders")
    async def bill(event: Any) -> None: ...

    app.node(stuck_grace=2 * SECOND, timing=Timing(heartbeat_every=0.5))
    with pytest.raises(ConfigError, match="stuck_grace is 'long', not a duration"):
        app.node(stuck_grace="long")  # type: ignore[arg-type]


DURATIONS = (
    "abort_grace",
    "drain_timeout",
    "flush_after",
    "lease",
    "release_timeout",
    "poll_interval",
    "promote_every",
    "prune_every",
    "rescue_every",
    "stuck_grace",
)


@pytest.mark.parametrize("setting", DURATIONS)
async def test_every_duration_of_a_worker_is_given_in_seconds_or_as_a_timedelta(app: App, setting):
    app.task(noop)
    seconds: dict[str, Any] = {setting: 4}
    span: dict[str, Any] = {setting: 4 * SECOND}
    wrong: dict[str, Any] = {setting: "4 s"}

    assert app.worker(**seconds).settings == app.worker(**span).settings
    with pytest.raises(ConfigError, match=f"{setting} is '4 s', not a duration: pass seconds as a number, or a time"):
        app.worker(**wrong)


async def test_what_waits_and_counts_takes_both(app: App):
    task = app.task(noop)
    job = await task.enqueue()
    await run_all(app)

    assert await job.wait(4 * SECOND) is JobState.COMPLETED
    assert await job.wait(4) is JobState.COMPLETED
    assert await app.jobs.counts(3600) == await app.jobs.counts(timedelta(hours=1))
    with pytest.raises(ConfigError, match="timeout is 'soon', not a duration"):
        await job.wait("soon")  # type: ignore[arg-type]


async def test_a_lease_that_is_too_short_is_named_with_its_minimum(app: App):
    app.task(noop)

    with pytest.raises(ConfigError, match=r"lease=0.01 is too short.*pass more than 0.01 s, for example 30") as refused:
        app.worker(lease=0.01)
    assert "flush_after=0.005" in str(refused.value)
    with pytest.raises(ConfigError, match=r"flush_after=20.*pass less than 15 s, for example 0.005"):
        app.worker(flush_after=20)
    with pytest.raises(ConfigError, match=r"lease=0.004.*pass more than 0.01 s"):
        app.worker(lease=0.004, flush_after=0.005)
