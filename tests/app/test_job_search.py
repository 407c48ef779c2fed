"""A search of jobs ends after some thousands of them, however few match, and goes on from there."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast import App, JobState
from holdfast.app.bulk import JobSelection
from holdfast.app.job_search import search
from holdfast.app.operation import OperationPreview

MANY, MOST = 4_500, 2_000


@pytest.fixture
async def rare(app: App) -> list[str]:
    """A store with thousands of delayed jobs of one task, and the ids of two of another: the first and the last."""

    @app.task(queue="mail")
    async def send() -> None: ...

    @app.task(queue="reports")
    async def report() -> None: ...

    first = await report.options(delay=3600).enqueue()
    await send.options(delay=3601).enqueue_many([()] * MANY)
    last = await report.options(delay=3602).enqueue()
    return [first.id, last.id]


@pytest.mark.parametrize("selected", [{"task": "report"}, {"queue": "reports"}])
async def test_pages_of_a_rare_job_are_bounded_and_find_every_one(app: App, rare: list[str], selected: dict[str, Any]):
    selection = JobSelection(JobState.SCHEDULED, **selected)
    pages = [await search(app, selection)]
    while pages[-1].cursor is not None:
        pages.append(await search(app, selection, cursor=pages[-1].cursor))

    assert [job.id for page in pages for job in page.jobs] == rare
    assert [(page.looked_at, page.is_cut) for page in pages] == [
        (MOST, True),
        (MOST, True),
        (MANY + 2 - 2 * MOST, False),
    ]


async def test_a_page_that_is_full_ends_behind_its_last_job(app: App, rare: list[str]):
    selection = JobSelection(JobState.SCHEDULED, task="send")
    first = await search(app, selection, limit=3)
    second = await search(app, selection, cursor=first.cursor, limit=600)

    seen = [job.id for page in (first, second) for job in page.jobs]
    assert len(first.jobs) == 3
    assert len(second.jobs) == 600
    assert not first.is_cut
    assert len(set(seen) - set(rare)) == 603


async def test_an_operation_on_a_rare_task_visits_every_job(app: App, rare: list[str]):
    begun = await app.operations.start("cancel", JobSelection(JobState.SCHEDULED, task="report"), "ops")
    await app.operations.run_pending()
    ended = await app.operations.get(begun.id)

    assert begun.expected == OperationPreview(1, at_least=True)  # which ends after 4,000 jobs
    assert ended.counts == {"cancelled": 2}
    assert ended.looked_at == MANY + 2
    assert [(await app.jobs.show(job_id)).job.state for job_id in rare] == [JobState.CANCELLED] * 2
