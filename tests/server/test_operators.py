"""Queues, tasks, schedules, events, consumers, bulk operations, probes and metrics over HTTP."""

from __future__ import annotations

import asyncio

import pytest
from tests.server.conftest import claim_one, client_of
from tests.server.test_jobs import enqueue, finish

from holdfast import App
from holdfast.errors import StoreUnavailable
from holdfast.server import asgi, operating
from holdfast.server.operating import Operating


async def test_queues_and_tasks_are_listed_paused_and_resumed(http):
    await enqueue(http)

    for noun, name in (("queues", "orders"), ("tasks", "charge")):
        answers = [
            (await http.post(f"/v1/{noun}/{name}/{verb}")).json()["changed"]
            for verb in ("pause", "pause", "resume", "resume")
        ]
        (listed,) = (await http.get(f"/v1/{noun}")).json()[noun]
        assert answers == [True, False, True, False]
        assert (listed["name"], listed["ready"], listed["paused"]) == (name, 1, False)


async def test_the_backlog_counts_what_waits_and_runs(http):
    for n in range(5):
        await enqueue(http, kwargs={"order_id": n})
    await claim_one(http)

    found = (await http.get("/v1/queues/orders/backlog", params={"jobs_per_worker": 2})).json()
    unknown = (await http.get("/v1/queues/unknown/backlog")).json()

    assert (found["ready"], found["running"], found["workers_wanted"]) == (4, 1, 3)
    assert (unknown["ready"], unknown["workers_wanted"]) == (0, 0)


async def test_an_unknown_backlog_is_no_mistake_of_the_caller(sqlite_app: App, monkeypatch: pytest.MonkeyPatch):
    async def broken(**_: object) -> None:
        raise StoreUnavailable("the disk is gone")

    monkeypatch.setattr(sqlite_app.queues, "list", broken)
    async with client_of(asgi(sqlite_app)) as http:
        assert (await http.get("/v1/queues/orders/backlog")).status_code == 503


async def test_operations_go_on_after_any_failure(sqlite_app: App, monkeypatch: pytest.MonkeyPatch, caplog):
    called = asyncio.Queue[None]()

    async def broken() -> int:
        called.put_nowait(None)
        raise ValueError("a mistake in an operation")

    await sqlite_app.opened()
    monkeypatch.setattr(sqlite_app.operations, "run_pending", broken)
    monkeypatch.setattr(operating, "_PERIOD", 0.01)
    running = Operating(sqlite_app)
    running.begin()
    async with asyncio.timeout(5):
        for _ in range(3):
            await called.get()
    await running.close()
    assert "a mistake in an operation" in caplog.text


async def test_a_schedule_is_shown_paused_and_run(http, app: App):
    await app.schedules.add("nightly", "charge", "0 3 * * *", kwargs={"order_id": 1})

    (listed,) = (await http.get("/v1/schedules")).json()["schedules"]
    await http.post("/v1/schedules/nightly/pause")
    paused = (await http.get("/v1/schedules/nightly")).json()
    job_id = "01a1ef92-8066-7469-9b72-a54f80d6a0db"
    statuses = [(await http.post("/v1/schedules/nightly/run", json={"id": job_id})).status_code for _ in range(2)]

    assert (listed["times"], listed["task"], listed["state"]) == ("0 3 * * *", "charge", "active")
    assert (paused["state"], statuses) == ("paused", [201, 200])
    assert (await app.jobs.show(job_id)).job.task == "charge"


async def test_events_are_appended_at_a_version_and_read_page_by_page(http):
    place = "/v1/categories/companies/streams/company/7/events"  # a stream may contain a slash
    body = {
        "events": [{"name": "named", "payload": {"to": "A", "token": "x"}}, {"name": "moved"}],
        "expected_version": 0,
    }

    made = await http.post(place, json=body)
    refused = await http.post(place, json=body)
    first = (await http.get(place, params={"limit": 1})).json()
    second = (await http.get(place, params={"after": first["cursor"]})).json()
    of_category = (await http.get("/v1/categories/companies/events")).json()
    of_log = (await http.get("/v1/events")).json()
    (category,) = (await http.get("/v1/categories")).json()["categories"]

    assert [event["version"] for event in made.json()["events"]] == [1, 2]
    assert (refused.status_code, refused.json()["type"]) == (409, "/v1/problems/version-conflict")
    assert refused.json()["actual"] == 2
    assert (first["events"][0]["payload"], first["events"][0]["stream"]) == (
        {"to": "A", "token": "[redacted]"},
        "company/7",
    )
    assert [event["name"] for event in second["events"]] == ["moved"]
    assert len(of_category["events"]) == len(of_log["events"]) == 2
    assert sum(category["heads"]) == 2


async def test_the_context_of_a_trace_goes_into_the_headers_of_events(http):
    place = "/v1/categories/companies/streams/company-7/events"
    context, own = [f"00-0af7651916cd43dd8448eb211c80319c-b7ad6b716920333{n}-01" for n in (1, 2)]
    body = {"events": [{"name": "named"}, {"name": "moved", "headers": {"traceparent": own}}]}
    await http.post(place, json=body, headers={"traceparent": context})

    events = (await http.get(place)).json()["events"]

    assert [event["headers"] for event in events] == [{"traceparent": context}, {"traceparent": own}]


async def test_consumers_nodes_and_workers_are_listed(http):
    assert (await http.get("/v1/consumers")).json() == {"consumers": []}
    assert (await http.get("/v1/nodes")).json() == {"nodes": [], "leader": None}
    assert (await http.get("/v1/workers")).json() == {"workers": []}


async def test_a_bulk_operation_is_previewed_and_carried_out_in_the_background(http, app: App):
    for n in range(3):
        await enqueue(http, kwargs={"order_id": n})
        await finish(http, await claim_one(http), "fail", error={"message": "no"})
    body = {"action": "retry", "state": "failed", "queue": "orders"}

    preview = await http.post("/v1/operations", json=body | {"preview": True})
    begun = await http.post("/v1/operations", json=body)
    async with asyncio.timeout(20):
        while (found := (await http.get(f"/v1/operations/{begun.json()['id']}")).json())["state"] == "running":  # noqa: ASYNC110 - as a client does
            await asyncio.sleep(0.02)

    assert (preview.status_code, preview.json()) == (200, {"count": 3, "at_least": False})
    assert (begun.status_code, found["state"], found["counts"]) == (202, "done", {"retried": 3})
    assert await app.queues.depth("orders") == 3
    assert (await http.get("/v1/operations")).json()["operations"][0]["who"] == "local"


async def test_probes_need_no_token_and_say_little_and_metrics_need_one(app: App):
    await app.opened()
    async with client_of(asgi(app, requires_token=True)) as http:
        live, ready, metrics = [await http.get(path) for path in ("/livez", "/readyz", "/metrics")]
        text = await app.tokens.create("prometheus", ["read"])
        scraped = await http.get("/metrics", headers={"authorization": f"Bearer {text}"})

    assert (live.status_code, live.json()["ok"]) == (200, True)
    assert (ready.status_code, ready.json()["checks"]) == (200, {"store": True, "schema": True})
    assert (metrics.status_code, scraped.status_code) == (401, 200)
    assert "holdfast_store_up 1.0" in scraped.text
