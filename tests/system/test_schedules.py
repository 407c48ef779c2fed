"""Real processes fire the same schedules, some of them disturbed: one job for each time, which takes effect once."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from tests.servers.postgres_schemas import clean_schema
from tests.system.fleet import PATIENT, Fleet

from holdfast.app.open import open_backend
from holdfast.model.job import JobState
from holdfast.model.schedule import recurrence
from holdfast.model.schedule_definition import NAME_HEADER, TIME_HEADER, ScheduleDefinition
from holdfast.store.backend import Backend
from holdfast.store.values import JobFilter

PROGRAM = Path(__file__).parent / "apps" / "firing.py"
PROCESSES = 8
CALLERS = 25  # in each process; on PostgreSQL each has a connection of its own
NAMES = [f"tick{number}" for number in range(5)]
SECOND = timedelta(seconds=1)


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path / 'jobs.db'}?synchronous=normal"
        return
    with clean_schema() as url:
        yield url


@pytest.mark.slow
@pytest.mark.timeout(180)
async def test_eight_processes_with_two_hundred_connections_fire_each_time_once(url: str):
    """On SQLite the callers of a process share one connection for writing, and one for reading."""
    backend = open_backend(url)
    await backend.open()
    try:
        tick = ScheduleDefinition(recurrence(every=SECOND, missed="all"), "tick")
        for name in NAMES:
            await backend.schedules.put(name, tick)
        running = [start(url) for _ in range(PROCESSES)]
        for _ in range(5):  # killed wherever they are, and replaced
            await asyncio.sleep(1.5)
            victim = running.pop(0)
            victim.kill()
            victim.wait()
            running.append(start(url))
        for process in running:
            assert await asyncio.to_thread(process.wait, 90) == 0
        await backend.schedules.fire(["tick"], [], 1000)
        found = await fired(backend)
        for name in NAMES:
            times = found[name]
            assert times == [times[0] + number * SECOND for number in range(len(times))], name  # none missing or twice
            assert len(times) >= 10
            (view,) = await backend.schedules.list([name])
            assert view.last_at == times[-1]
    finally:
        await backend.close()


@pytest.mark.slow
@pytest.mark.timeout(180)
def test_each_time_of_a_schedule_takes_effect_once_whatever_happens_to_workers(ledger, workers):
    app = ledger.app.sync
    for name in NAMES[:2]:
        app.schedules.add(name, "pay", every=SECOND, missed="all", window=600, **PATIENT)
    fleet = Fleet(workers, 3, seed=20261119)
    fleet.disturb(lambda: len(ledger.store.effects()), 20)
    fleet.resumed()
    for name in NAMES[:2]:
        app.schedules.pause(name)
    unfinished = {state: app.jobs.list(state) for state in ("ready", "running", "scheduled")}
    ledger.completed(*(job.id for page in unfinished.values() for job in page.jobs))
    fleet.shut_down()
    jobs = [effect.job_id for effect in ledger.store.effects()]
    ledger.assert_once(jobs)
    times: dict[str, list[datetime]] = {name: [] for name in NAMES[:2]}
    for job_id in jobs:
        headers = ledger.show(job_id).headers
        times[headers[NAME_HEADER]].append(datetime.fromisoformat(headers[TIME_HEADER]))
    for name, seen in times.items():
        first = min(seen)
        assert sorted(seen) == [first + number * SECOND for number in range(len(seen))], name  # none missing or twice
        assert app.schedules.show(name).last_at == max(seen)


def start(url: str) -> subprocess.Popen[bytes]:
    pooled = url if url.startswith("sqlite") else f"{url}&pool={CALLERS}"
    return subprocess.Popen([sys.executable, str(PROGRAM), pooled, str(CALLERS), "10"])


async def fired(backend: Backend) -> dict[str, list[datetime]]:
    """Return the nominal times of all jobs by schedule, in order, each as often as there is a job."""
    found: dict[str, list[datetime]] = {name: [] for name in NAMES}
    cursor = None
    while True:
        page = await backend.insight.jobs(JobFilter(JobState.READY, cursor=cursor, limit=500))
        for job in page.jobs:
            headers = (await backend.insight.job(job.id)).headers
            found[headers[NAME_HEADER]].append(datetime.fromisoformat(headers[TIME_HEADER]))
        cursor = page.cursor
        if cursor is None:
            return {name: sorted(times) for name, times in found.items()}
