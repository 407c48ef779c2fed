"""Texts as long as a store keeps them: a page stays small, and says where the whole text is."""

from __future__ import annotations

import asyncio

import pytest
from markupsafe import escape
from tests.server.dashboard.test_pages import MOST_BYTES, PATHS

from holdfast import Event
from holdfast.model.names import MAX_NAME
from holdfast.reports.text import block
from holdfast.server.dashboard.assets import assets
from holdfast.server.dashboard.formats import cut

NASTY = "<\"'&\u202e"
"""Characters that need the most bytes in HTML."""
LONG = NASTY * 2000
LONG_NAME = "n" * MAX_NAME


def deep(depth: int) -> None:
    """Raise from so deep that the traceback is as long as it may be."""
    if depth:
        deep(depth - 1)
    raise ValueError(LONG)


async def size_of(site, path: str) -> int:
    return sum(len(asset.content) for asset in assets().values()) + len((await site.get(path)).encode())


async def test_a_job_with_a_large_payload_and_many_long_failures_stays_small(site):
    @site.app.task(queue="mails", max_attempts=25, retry=0, name=LONG_NAME)
    async def upload(data: list[str], note: str = "") -> list[str]:
        deep(200)
        return data

    parts = ['"'] * 50_000
    job = await upload.options(headers={"a": LONG[:2000]}, order_key="k" * MAX_NAME).enqueue(parts, note="the end")
    await site.app.drain("mails")
    details = await site.app.jobs.show(job.id)
    assert len(details.payload) > 230_000
    assert len(details.attempts) == 25

    for path in (f"/jobs/{job.id}", f"/jobs/{job.id}?reveal=yes"):
        assert await size_of(site, path) <= MOST_BYTES, path
    revealed = await site.get(f"/jobs/{job.id}?reveal=yes")
    assert "the end" not in revealed
    assert f'href="/v1/jobs/{job.id}?arguments=true"' in revealed
    whole = (await site.client.get(f"/v1/jobs/{job.id}?arguments=true")).json()
    assert whole["arguments"]["kwargs"] == {"data": parts, "note": "the end"}


async def test_a_large_result_is_cut_too_and_secrets_stay_hidden(site):
    @site.app.task(queue="mails")
    async def download() -> dict[str, str]:
        return {"first": "x" * 200_000, "password": "hunter2"}

    job = await download.enqueue()
    await site.app.drain("mails")

    text = await site.get(f"/jobs/{job.id}?reveal=yes")

    assert await size_of(site, f"/jobs/{job.id}?reveal=yes") <= MOST_BYTES
    assert "hunter2" not in text
    assert "xxxx" in text


async def test_a_job_of_a_large_graph_stays_small(site):
    first = await site.send.options(delay=600).enqueue("x")
    middle = [await site.send.options(after=[first]).enqueue("x") for _ in range(110)]
    last = await site.send.options(after=middle).enqueue("x")

    for job in (first, middle[0], last):
        assert await size_of(site, f"/jobs/{job.id}") <= MOST_BYTES


@pytest.mark.slow
async def test_lists_of_long_texts_stay_small(site):
    @site.app.task(queue=LONG_NAME, max_attempts=1, name=LONG_NAME)
    async def fail(number: int) -> None:
        deep(200)

    @site.app.consumer("c" * MAX_NAME, category="d" * MAX_NAME, max_attempts=1, on_error="park")
    async def bill(event: Event) -> None:
        deep(200)

    await fail.enqueue_many([{"number": number} for number in range(50)])
    await site.app.drain(LONG_NAME, 50)
    for place in range(50):  # of as many groups
        await site.send.options(queue="q" + "q" * place).enqueue("x")
    for place in range(50):
        (job,) = await site.app.claim("q" + "q" * place, worker_id="w" * MAX_NAME, lease=60)
        await job.fail(ValueError("x" * place + LONG))
    await fail.options(order_key="<" * MAX_NAME).enqueue_many([{"number": number} for number in range(50)])
    await site.app.claim(LONG_NAME, 1, worker_id="w" * MAX_NAME, lease=60)
    for _ in range(50):
        await site.app.audit.record("w" * 200, "a" * 200, "<" * 200, LONG, origin=LONG)
    await site.app.category("d" * MAX_NAME, partitions=1)
    await site.app.append_many(
        "d" * MAX_NAME,
        [{"stream": f"{number}" + "<" * 250, "name": LONG_NAME, "payload": LONG} for number in range(35)],
    )
    node = site.app.node()
    running = asyncio.create_task(node.run())
    async with asyncio.timeout(40):
        while not all(view.parked == 35 for view in await site.app.consumers.list()) or not await site.app.nodes():  # noqa: ASYNC110
            await asyncio.sleep(0.02)
    states = ("running", "ready", "blocked", "failed")
    preview = f"/preview?verb=retry&of=all&state=failed&task={LONG_NAME}"
    events = f"/events?category={'d' * MAX_NAME}&partition=0&reveal=yes"
    consumer = f"/consumer?name={'c' * MAX_NAME}"

    sizes = {
        path: await size_of(site, path)
        for path in [*PATHS, *(f"/jobs?state={state}" for state in states), preview, consumer, events]
    }
    node.stop()
    await running

    assert {path: size for path, size in sizes.items() if size > MOST_BYTES} == {}


@pytest.mark.parametrize("text", ["", "short", LONG, "\x1b" * 500, "é" * 500, "\n" * 500])
def test_a_text_is_cut_by_its_size_in_html(text):
    begin, end = cut(text, 300), cut(text, 300, keeps="end")

    for part in (begin, end):
        assert len(str(escape(block(part))).encode()) <= 300
        assert len(part) >= min(len(text), 40)
    assert (begin == text) == (end == text) == (len(str(escape(block(text))).encode()) <= 300)
