"""A million ready and a million finished jobs: no request takes more statements for them, and pages stay quick."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.server.dashboard.conftest import Site

from holdfast.server.api.operation import Operation
from holdfast.server.api.routes import OPERATIONS
from holdfast.server.claims import WaitingClaims
from holdfast.server.dashboard.pages import PAGES

pytestmark = [pytest.mark.torture, pytest.mark.timeout(1500)]

JOBS, FEW = 1_000_000, 12_000  # a page counts to 10,000
CHUNK = 50_000
LONGEST = 0.3  # seconds for a page
LISTS = ("ready", "completed", "failed")
CHANGES: tuple[tuple[str, str, dict[str, object]], ...] = (
    ("POST", "/v1/jobs", {"task": "send", "queue": "mails", "kwargs": {"to": "x"}}),
    ("POST", "/v1/queues/mails/pause", {}),
    ("POST", "/v1/queues/mails/resume", {}),
    ("POST", "/v1/operations", {"action": "cancel", "state": "ready", "preview": True}),
    (
        "POST",
        "/v1/leases/claim",
        {"queues": ["mails"], "tasks": ["send"], "limit": 5},
    ),
)


def address(operation: Operation, job_id: str) -> str:
    """Return a path at which an operation finds something."""
    query = {"list_jobs": "?state=ready", "read_stream_events": "", "read_category_events": ""}.get(operation.name, "")
    names = {"job_id": job_id, "queue": "mails", "task": "send"}
    return operation.path.format(**names) + query


def addresses(job_id: str) -> list[str]:
    """Return every page, and every operation that reads what exists here."""
    pages = [page.path.format(job_id=job_id) for page in PAGES if page.path != "/consumer"]
    lists = [f"/jobs?state={state}" for state in LISTS] + ["/jobs?state=completed&task=send&queue=mails"]
    reads = [
        address(operation, job_id)
        for operation in OPERATIONS
        if operation.method == "GET" and set(operation.path.split("{")[1:]) <= {"job_id}", "job_id}/graph"}
    ]
    return [*pages, *lists, *reads, "/v1/queues/mails/backlog", "/metrics", "/preview?verb=cancel&of=all&state=ready"]


async def asked_by(site: Site, statements: Callable[[], list[str]], job_id: str) -> dict[str, tuple[int, float]]:
    """Return for each request how many statements it takes, and the seconds of the quicker of two."""
    found: dict[str, tuple[int, float]] = {}
    for path in addresses(job_id):
        spans: list[float] = []
        for _ in range(2):
            statements()
            began = time.perf_counter()
            answer = await site.client.get(path)
            spans.append(time.perf_counter() - began)
            assert answer.status_code < 300, (path, answer.text)
            found[path] = (len(statements()), min(spans))
    for method, path, body in CHANGES:
        statements()
        changed: httpx.Response = await site.client.request(method, path, json=body, headers={"accept": "*/*"})
        assert changed.status_code < 300, (path, changed.text)
        found[f"{method} {path}"] = (len(statements()), 0.0)
    return found


async def fill(site: Site, count: int) -> None:
    for first in range(0, count, CHUNK):
        await site.send.enqueue_many([{"to": "user"}] * min(CHUNK, count - first))


async def finish(site: Site, count: int) -> None:
    """Complete so many of the jobs."""
    done = 0
    while done < count:
        jobs = await site.app.claim("mails", min(1000, count - done), lease=600)
        done += len(jobs)
        async with site.app.batch(jobs) as batch:
            for job in jobs:
                batch.complete(job)


async def test_no_request_takes_more_statements_and_no_page_longer_with_millions_of_jobs(
    tmp_path: Path, statements: Any, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(WaitingClaims, "_keep_up", lambda *_: None)  # it asks by itself, at any time
    site = Site(f"sqlite:///{tmp_path / 'shop.db'}?synchronous=normal")
    async with site.app, site.client:
        failed = await site.failed_job()
        await fill(site, 2 * FEW)
        await finish(site, FEW)
        await asked_by(site, statements, failed)  # opens what is opened once
        small = await asked_by(site, statements, failed)
        await fill(site, 2 * JOBS)
        await finish(site, JOBS)
        await site.client.get("/")  # the first after a start
        large = await asked_by(site, statements, failed)

    assert {path: number for path, (number, _) in large.items()} == {
        path: number for path, (number, _) in small.items()
    }
    pages = {path: took for path, (_, took) in large.items() if not path.startswith(("/v1/", "POST", "/metrics"))}
    slowest = sorted(pages, key=lambda path: -pages[path])[:5]
    sys.stdout.write("".join(f"{pages[path] * 1000:.0f} ms  {path}\n" for path in slowest))  # shown with -s
    assert not {path: took for path, took in pages.items() if took > LONGEST}
