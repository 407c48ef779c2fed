"""The event browser, the preview of a reset, and the export of the audit log."""

from __future__ import annotations

import asyncio
import json
import re

import pytest
from tests.server.dashboard.test_actions import fields_of

from holdfast import Event
from holdfast.server.dashboard.assets import assets


@pytest.fixture
async def filled(site):
    await site.app.category("companies", partitions=2)
    for number in range(100):
        payload = {"number": f"no. {number}", "password": "hunter2"}
        await site.app.append("companies", stream=f"company-{number % 2}", name="renamed", payload=payload)
    return site


async def every(site, path: str) -> list[int]:
    """Return the positions, or the versions of a stream, on a page and on all later ones."""
    text = await site.get(path)
    seen = [int(found) for found in re.findall(r'<tr data-key="(\d+)"', text)]
    following = re.search(r'rel="next" href="([^"]+)"', text)
    return seen if following is None else seen + await every(site, following[1].replace("&amp;", "&"))


async def test_a_partition_is_paged_through_from_its_newest_event(filled):
    (view,) = await filled.app.categories()

    seen = [await every(filled, f"/events?category=companies&partition={number}") for number in range(2)]

    assert seen == [list(range(head, 0, -1)) for head in view.heads]


async def test_a_stream_is_paged_through_from_its_newest_event(filled):
    text = await filled.get("/events?category=companies&stream=company-1")

    assert len(await every(filled, "/events?category=companies&stream=company-1")) == 50
    assert "Stream company-1" in text


async def test_trimmed_events_end_the_pages(filled):
    await filled.app.trim("companies", 0, limit=100)

    text = await filled.get("/events?category=companies&partition=0")

    assert "No events here" in text
    assert 'rel="next"' not in text


async def test_payloads_are_revealed_to_operators_without_their_secrets(filled):
    path = "/events?category=companies&stream=company-1"
    assert "no. 99" not in await filled.get(path)

    filled.role = "operate"
    text = await filled.get(f"{path}&reveal=yes")

    assert "no. 99" in text
    assert "hunter2" not in text
    entries = [(entry.action, entry.target) for entry in await filled.app.audit.list()]
    assert entries == [("events.reveal", "companies/company-1")]
    filled.role = "read"
    await filled.get(f"{path}&reveal=yes", 403)
    assert "reveal=yes" not in await filled.get(path)


async def test_a_single_event_is_shown_and_a_large_one_is_cut(site):
    payload = {"password": "hunter2", "large": "x" * 200_000}
    place = await site.app.append("companies", stream="a/b c", name="renamed", payload=payload, headers={"token": "t1"})
    path = f"/events?category=companies&partition={place.partition_id}&position=1"

    assert "xxxx" not in await site.get(path)
    text = await site.get(f"{path}&reveal=yes")

    assert "xxxx" in text
    assert not [secret for secret in ("hunter2", "t1&#34;") if secret in text]
    assert len(text.encode()) + sum(len(asset.content) for asset in assets().values()) <= 100_000
    whole = re.search(r'href="(/v1/[^"]+)"', text)
    assert whole is not None
    (event,) = (await site.client.get(whole[1].replace("&amp;", "&"))).json()["events"]
    assert event["payload"]["large"] == "x" * 200_000


@pytest.mark.parametrize(
    ("query", "status"),
    [
        ("category=unknown", 404),
        ("category=companies&partition=2", 422),
        ("category=companies&partition=x", 422),
        ("category=companies&partition=-1", 422),
        ("category=companies&before=99999999999999999999999", 422),
        ("category=companies&stream=s&before=0", 200),
        ("category=companies&partition=0&position=9999", 200),
        ("category=companies&partition=0&before=9999", 200),
        ("category=companies&stream=unknown", 200),
        ("category=", 200),
    ],
)
async def test_an_address_that_names_no_event_is_answered(filled, query, status):
    await filled.get(f"/events?{query}", status)


@pytest.mark.parametrize(
    ("to", "text"), [("beginning", "<b>30</b> events are handled again"), ("end", "<b>10</b> events are skipped")]
)
async def test_a_reset_shows_first_what_it_changes(site, to, text):
    @site.app.consumer("billing", category="companies")
    async def bill(event: Event) -> None:
        pass

    await site.app.category("companies", partitions=2)
    events = [{"stream": f"company-{number % 4}", "name": "renamed"} for number in range(30)]
    await site.app.append_many("companies", events)
    node = site.app.node()
    running = asyncio.create_task(node.run())
    async with asyncio.timeout(20):
        while not (views := await site.app.consumers.list()) or any(view.lag for view in views):  # noqa: ASYNC110
            await asyncio.sleep(0.02)
    node.stop()
    await running
    await site.app.append_many("companies", events[:10])

    asked = await site.get(f"/ask?of=/streams&verb=reset&name=billing&to={to}")
    await site.post("/streams", **fields_of(asked, "reset"))

    assert text in asked
    lag = (await site.app.consumers.show("billing")).lag
    assert lag == (40 if to == "beginning" else 0)
    site.role = "operate"
    await site.get(f"/ask?of=/streams&verb=reset&name=billing&to={to}", 403)


async def test_the_audit_log_is_exported_as_lines(site, statements):
    for number in range(1500):
        await site.app.audit.record("ada", "queue.pause", f"queue-{number}", "why\n", origin="10.0.0.1")
    statements()

    answer = await site.client.get("/audit/export")

    assert len(statements()) <= 3
    assert answer.headers["content-disposition"] == 'attachment; filename="holdfast-audit.jsonl"'
    lines = [json.loads(line) for line in answer.text.splitlines()]
    assert [line["target"] for line in lines] == [f"queue-{number}" for number in reversed(range(1500))]
    assert {"at", "who", "action", "detail", "origin"} <= set(lines[0])
    site.role = None
    assert (await site.client.get("/audit/export")).status_code in {401, 403}
