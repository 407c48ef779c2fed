"""Many ready and many finished jobs: no request takes more statements for them, and none much longer.

Judged is the quicker of two: the first load after a start, which fills the caches of the store, takes longer.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

import pytest
from tests.server.dashboard.conftest import Site
from tests.server.every_operation import RARE, STREAM, Costs, EveryOperation
from tests.servers.postgres_schemas import clean_schema

from holdfast import Event
from holdfast.server.claims import WaitingClaims
from holdfast.server.dashboard.pages import PAGES
from holdfast.server.operating import Operating
from holdfast.telemetry import store_figures

FEW = 12_000  # a page counts to 10,000
CHUNK = 50_000
LISTS = ("ready", "completed", "failed")
SIZES = [  # jobs of each kind, and the seconds that a request may take; other tests run beside the smaller one
    pytest.param(50_000, 1.5, marks=[pytest.mark.slow, pytest.mark.timeout(300)]),
    pytest.param(1_000_000, 0.3, marks=[pytest.mark.torture, pytest.mark.timeout(1800)]),
]


@pytest.fixture(params=["sqlite", "postgres"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path / 'shop.db'}?synchronous=normal"
    else:
        with clean_schema() as schema:
            yield schema


@pytest.fixture
def asked(store: str, statements: Any, exchanges: Any, monkeypatch: pytest.MonkeyPatch) -> Callable[[], list[Any]]:
    """What the store was asked since the last call: statements of SQLite, exchanges with PostgreSQL."""
    monkeypatch.setattr(WaitingClaims, "_keep_up", lambda *_: None)  # they ask by themselves, at any time
    monkeypatch.setattr(Operating, "begin", lambda _: None)
    reader = store_figures.FigureReader.__init__
    monkeypatch.setattr(reader, "__kwdefaults__", {"kept_for": 0.0})  # otherwise a figure is now read, now remembered
    return cast("Callable[[], list[Any]]", statements if store.startswith("sqlite") else exchanges)


@asynccontextmanager
async def shop(store: str) -> AsyncIterator[Site]:
    site = Site(store)
    rare = site.app.task(queue="mails", name=RARE)(site.send.function)

    @site.app.consumer("billing", category=STREAM["category"])
    async def billing(event: Event) -> None: ...

    async with site.app, site.client:
        await site.app.schedules.add("nightly", "send", "0 3 * * *", kwargs={"to": "x"})
        await rare.enqueue("user")
        yield site


async def subscribe(site: Site) -> None:
    """Let the consumer run until it is known."""
    await site.app.append(STREAM["category"], stream=STREAM["stream"], name="founded")
    node = site.app.node()
    running = asyncio.create_task(node.run())
    async with asyncio.timeout(60):
        while not any(view.shares for view in await site.app.consumers.list()):  # noqa: ASYNC110 - as a client sees it
            await asyncio.sleep(0.02)
    node.stop()
    await running


async def fill(site: Site, count: int) -> None:
    for first in range(0, count, CHUNK):
        await site.send.enqueue_many([{"to": "user"}] * min(CHUNK, count - first))


async def finish(site: Site, count: int) -> str:
    """Complete so many of the jobs; return the id of one."""
    done = 0
    while True:
        jobs = await site.app.claim("mails", min(1000, count - done), lease=600)
        done += len(jobs)
        async with site.app.batch(jobs) as batch:
            for job in jobs:
                batch.complete(job)
        if done >= count:
            return jobs[0].id


async def pages(site: Site, asked: Callable[[], list[Any]], job_id: str) -> Costs:
    """Return what each page of the dashboard costs, and the metrics."""
    queries = {"/consumer": "?name=billing"}
    found = [page.path.format(job_id=job_id) + queries.get(page.path, "") for page in PAGES]
    found += [f"/jobs?state={state}" for state in LISTS]
    found += [f"/jobs?state=completed&task={task}&queue=mails" for task in ("send", RARE)]
    costs: Costs = {}
    for path in (*found, "/metrics", "/preview?verb=cancel&of=all&state=ready"):
        asked()
        began = time.perf_counter()
        await site.get(path)
        costs[path] = (len(asked()), time.perf_counter() - began)
    return costs


async def round_of(site: Site, asked: Callable[[], list[Any]], completed: str, failed: str) -> Costs:
    """Return what each request costs; the time is that of the quicker of two."""
    both: list[Costs] = []
    for _ in range(2):
        every = EveryOperation(site, asked)
        both.append(await every.run(completed) | await pages(site, asked, failed))
    return {name: (number, min(took, both[0][name][1])) for name, (number, took) in both[1].items()}


@pytest.mark.parametrize(("jobs", "longest"), SIZES)
async def test_no_request_takes_more_statements_and_none_long_with_many_jobs(
    store: str, asked: Callable[[], list[Any]], jobs: int, longest: float
):
    async with shop(store) as site:
        failed = await site.failed_job()
        await subscribe(site)
        await fill(site, 2 * FEW)
        completed = await finish(site, FEW)
        await round_of(site, asked, completed, failed)  # opens what is opened once
        small = await round_of(site, asked, completed, failed)
        await fill(site, 2 * jobs)
        await finish(site, jobs)
        large = await round_of(site, asked, completed, failed)

    assert {name: number for name, (number, _) in large.items()} == {
        name: number for name, (number, _) in small.items()
    }
    slowest = sorted(large, key=lambda name: -large[name][1])[:8]
    sys.stdout.write("".join(f"{large[name][1] * 1000:.0f} ms  {name}\n" for name in slowest))  # shown with -s
    assert not {name: took for name, (_, took) in large.items() if took > longest}
