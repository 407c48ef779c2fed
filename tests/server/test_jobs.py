"""Jobs over HTTP: enqueue, look, wait and change, as with the app itself."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx
import pytest
from tests.server.conftest import claim_one

from holdfast import App
from holdfast.model.ids import new_id

CHARGE = {"task": "charge", "kwargs": {"order_id": 7}}


async def enqueue(http: httpx.AsyncClient, **options) -> Any:
    response = await http.post("/v1/jobs", json=CHARGE | options)
    assert response.status_code == 201, response.text
    return response.json()["id"]


async def finish(http: httpx.AsyncClient, claimed: Any, outcome: str = "complete", **more) -> Any:
    item = {"lease": claimed["lease"], "outcome": outcome, **more}
    response = await http.post("/v1/leases/finish", json={"leases": [item]})
    assert response.status_code == 200, response.text
    return response.json()["verdicts"][0]["verdict"]


# --- enqueue ----------------------------------------------------------------------------------------------------------


async def test_a_job_is_enqueued_with_the_defaults_of_its_task_and_found_under_its_location(http):
    response = await http.post("/v1/jobs", json=CHARGE)

    found = (await http.get(response.headers["location"], params={"arguments": True})).json()
    assert (response.status_code, response.json()["created"]) == (201, True)
    assert (found["job"]["queue"], found["job"]["state"], found["job"]["max_attempts"]) == ("orders", "ready", 3)
    assert found["arguments"] == {"args": [], "kwargs": {"order_id": 7}, "headers": {}, "result": None}


async def test_a_task_that_only_workers_know_is_enqueued_too(http):
    response = await http.post("/v1/jobs", json={"task": "resize", "args": [1, "a"], "kwargs": {"b": [None]}})

    found = (await http.get(response.headers["location"], params={"arguments": True})).json()
    assert (found["job"]["task"], found["job"]["queue"]) == ("resize", "default")
    assert (found["arguments"]["args"], found["arguments"]["kwargs"]) == ([1, "a"], {"b": [None]})


async def test_options_are_those_of_the_app(http, app: App):
    job_id = await enqueue(
        http, queue="late", delay_seconds=60, priority=3, headers={"trace": "x"}, order_key="k", timeout_seconds=1.5
    )

    details = await app.jobs.show(job_id)
    assert (details.job.queue, details.job.state, details.job.priority) == ("late", "scheduled", 3)
    assert (details.headers, details.job.order_key, details.timeout) == ({"trace": "x"}, "k", 1.5)


async def test_the_context_of_a_trace_goes_into_the_headers_of_the_job(http, app: App):
    context = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    response = await http.post("/v1/jobs", json=CHARGE, headers={"traceparent": context})

    assert (await app.jobs.show(response.json()["id"])).headers == {"traceparent": context}


@pytest.mark.parametrize("by", ["id", "key"])
async def test_a_repeat_finds_the_same_job(http, by: str):
    body = CHARGE | ({"id": new_id()} if by == "id" else {})
    headers = {"idempotency-key": "order 7"} if by == "key" else {}
    first, second = [await http.post("/v1/jobs", json=body, headers=headers) for _ in range(2)]

    assert (first.status_code, second.status_code) == (201, 200)
    assert (first.json()["id"], second.json()["created"]) == (second.json()["id"], False)


async def test_an_id_that_is_used_for_another_call_is_refused(http):
    job_id = await enqueue(http, id=new_id())

    response = await http.post("/v1/jobs", json={"task": "charge", "kwargs": {"order_id": 8}, "id": job_id})

    assert (response.status_code, response.json()["type"]) == (422, "/v1/problems/id-reused")


async def test_a_held_unique_key_is_answered_with_its_holder_or_a_conflict(http):
    holder = await enqueue(http, unique_key="order-7")

    kept = await http.post("/v1/jobs", json=CHARGE | {"unique_key": "order-7"})
    refused = await http.post("/v1/jobs", json=CHARGE | {"unique_key": "order-7", "on_conflict": "raise"})

    assert (kept.status_code, kept.json()) == (200, {"id": holder, "created": False})
    assert (refused.status_code, refused.json()["job_id"]) == (409, holder)
    assert refused.json()["type"] == "/v1/problems/unique-conflict"


async def test_a_batch_is_enqueued_whole_or_not_at_all(http, app: App):
    wrong = {"task": "charge", "kwargs": {"order_id": "seven"}}
    refused = await http.post("/v1/jobs/batch", json={"jobs": [CHARGE, wrong]})
    assert (refused.status_code, await app.queues.depth("orders")) == (422, 0)
    assert refused.json()["detail"].startswith("jobs[1]: ")

    jobs = [CHARGE, {"task": "resize", "queue": "orders"}]
    headers = {"idempotency-key": "batch 1"}
    first, second = [await http.post("/v1/jobs/batch", json={"jobs": jobs}, headers=headers) for _ in range(2)]

    assert (first.status_code, second.status_code, await app.queues.depth("orders")) == (201, 200, 2)
    assert [job["id"] for job in first.json()["jobs"]] == [job["id"] for job in second.json()["jobs"]]


@pytest.mark.parametrize("by", ["id", "key"])
async def test_a_batch_with_an_id_that_is_used_for_another_call_is_refused_whole(http, app: App, by: str):
    chosen = {"id": new_id()} if by == "id" else {}
    headers = {"idempotency-key": "batch 1"} if by == "key" else {}
    first = await http.post("/v1/jobs/batch", json={"jobs": [CHARGE | chosen]}, headers=headers)
    other = {"task": "charge", "kwargs": {"order_id": 8}}

    response = await http.post("/v1/jobs/batch", json={"jobs": [other | chosen, other]}, headers=headers)

    assert (response.status_code, response.json()["type"]) == (422, "/v1/problems/id-reused")
    assert response.json()["job_id"] == first.json()["jobs"][0]["id"]
    assert response.json()["detail"].startswith("jobs[0]: ")
    assert await app.queues.depth("orders") == 1


async def test_a_batch_that_loses_its_id_to_another_request_is_told_so(http, app: App, monkeypatch):
    taken, backend = new_id(), await app.opened()
    asked = backend.insight.states

    async def states_before(ids: list[str]) -> object:
        found = await asked(ids)
        await enqueue(http, id=taken, kwargs={"order_id": 8})
        return found

    monkeypatch.setattr(backend.insight, "states", states_before)
    response = await http.post("/v1/jobs/batch", json={"jobs": [CHARGE, CHARGE | {"id": taken}]})

    assert (response.status_code, response.json()["job_id"]) == (422, taken)
    assert response.json()["detail"].startswith("the other jobs are enqueued; jobs[1]: ")


async def test_an_id_stands_for_one_call_in_a_batch(http, app: App):
    body = CHARGE | {"id": new_id()}

    refused = await http.post("/v1/jobs/batch", json={"jobs": [body, body | {"kwargs": {"order_id": 8}}]})
    depth = await app.queues.depth("orders")
    twice = await http.post("/v1/jobs/batch", json={"jobs": [body, body]})

    assert (refused.status_code, depth) == (422, 0)
    assert [job["created"] for job in twice.json()["jobs"]] == [True, False]


# --- look -------------------------------------------------------------------------------------------------------------


async def test_a_list_is_read_page_by_page(http):
    ids = [await enqueue(http, kwargs={"order_id": n}) for n in range(5)]

    seen: list[str] = []
    cursor: dict[str, str] = {}
    while True:
        page = (await http.get("/v1/jobs", params={"state": "ready", "limit": 2, **cursor})).json()
        seen += [job["id"] for job in page["jobs"]]
        if page["cursor"] is None:
            break
        cursor = {"cursor": page["cursor"]}

    assert seen == ids


async def test_failed_jobs_are_grouped_by_their_error(http):
    for error in ("no funds on 17", "no funds on 18", "no card"):
        await enqueue(http)
        await finish(http, await claim_one(http), "fail", error={"class": "CardDeclined", "message": error})

    found = (await http.get("/v1/errors")).json()

    assert [(group["task"], group["jobs"]) for group in found["groups"]] == [("charge", 2), ("charge", 1)]
    assert found["groups"][0]["error"].endswith("no funds on 18")
    assert (found["looked_at"], found["is_cut"]) == (3, False)
    body = {"action": "retry", "state": "failed", "error": found["groups"][0]["error"], "preview": True}
    assert (await http.post("/v1/operations", json=body)).json()["count"] == 2


async def test_arguments_are_hidden_unless_asked_for_and_secrets_always(http):
    job_id = (await http.post("/v1/jobs", json={"task": "t", "kwargs": {"a": {"api_key": "x", "b": 1}}})).json()["id"]

    hidden = (await http.get(f"/v1/jobs/{job_id}")).json()
    asked = (await http.get(f"/v1/jobs/{job_id}", params={"arguments": "true"})).json()

    assert hidden["arguments"] is None
    assert asked["arguments"]["kwargs"] == {"a": {"api_key": "[redacted]", "b": 1}}


async def test_an_explanation_names_the_cause(http, app: App):
    job_id = await enqueue(http)
    await http.post("/v1/queues/orders/pause")

    found = (await http.get(f"/v1/jobs/{job_id}/explain")).json()

    assert (found["cause"], found["details"]) == ("queue_paused", {"queue": "orders"})


async def test_the_graph_shows_what_a_job_comes_after(http):
    parent = await enqueue(http)
    child = await enqueue(http, after=[parent])

    graph = (await http.get(f"/v1/jobs/{parent}/graph")).json()

    assert [(job["id"], job["parents"]) for job in graph["jobs"]] == [(parent, []), (child, [parent])]


# --- wait -------------------------------------------------------------------------------------------------------------


async def test_a_wait_ends_with_the_job_and_the_result_follows(http):
    job_id = await enqueue(http)
    early = await http.get(f"/v1/jobs/{job_id}/result")
    waiting = asyncio.create_task(http.get(f"/v1/jobs/{job_id}/wait", params={"wait_seconds": 20}))

    await finish(http, await claim_one(http), result={"paid": [1]})

    assert (early.status_code, early.json()["ended"]) == (202, False)
    assert (await waiting).json() == {"id": job_id, "state": "completed", "ended": True}
    assert (await http.get(f"/v1/jobs/{job_id}/result")).json() == {"id": job_id, "result": {"paid": [1]}}


async def test_the_result_of_a_failed_job_is_a_conflict_with_the_error(http):
    job_id = await enqueue(http)
    await finish(http, await claim_one(http), "fail", error={"class": "CardDeclined", "message": "no funds"})

    response = await http.get(f"/v1/jobs/{job_id}/result")

    assert (response.status_code, response.json()["type"]) == (409, "/v1/problems/job-failed")
    assert response.json()["error_class"] == "CardDeclined"


# --- change -----------------------------------------------------------------------------------------------------------


async def test_a_job_is_cancelled_retried_copied_and_deleted(http):
    job_id = await enqueue(http)

    cancelled = await http.post(f"/v1/jobs/{job_id}/cancel", json={"reason": "ordered twice"})
    retried = await http.post(f"/v1/jobs/{job_id}/retry")
    again = await http.post(f"/v1/jobs/{job_id}/retry")
    copied = await http.post(f"/v1/jobs/{job_id}/copy", json={})
    refused = await http.delete(f"/v1/jobs/{job_id}")
    await http.post(f"/v1/jobs/{job_id}/cancel")
    deleted = await http.delete(f"/v1/jobs/{job_id}")

    assert cancelled.json()["verdict"] == "cancelled"
    assert (retried.json()["changed"], again.json()["changed"]) == (True, False)
    assert copied.json()["id"] != job_id
    assert (refused.status_code, deleted.status_code) == (422, 204)
    assert (await http.get(f"/v1/jobs/{job_id}")).status_code == 404


async def test_a_copy_with_an_id_is_repeated_as_an_enqueue_is(http):
    job_id, other_id = await enqueue(http), await enqueue(http, kwargs={"order_id": 8})
    body = {"id": new_id()}

    first, second = [await http.post(f"/v1/jobs/{job_id}/copy", json=body) for _ in range(2)]
    other = await http.post(f"/v1/jobs/{other_id}/copy", json=body)

    assert [(each.status_code, each.json()["created"]) for each in (first, second)] == [(201, True), (200, False)]
    assert first.headers["location"].endswith(body["id"])
    assert (other.status_code, other.json()["type"]) == (422, "/v1/problems/id-reused")


async def test_a_scheduled_job_is_run_now(http):
    job_id = await enqueue(http, delay_seconds=3600)

    answers = [(await http.post(f"/v1/jobs/{job_id}/run")).json() for _ in range(2)]

    assert [answer["changed"] for answer in answers] == [True, False]
    assert (await claim_one(http))["job"]["id"] == job_id


async def test_a_reset_makes_the_fence_of_the_worker_stale(http):
    job_id = await enqueue(http)
    claimed = await claim_one(http)

    await http.post(f"/v1/jobs/{job_id}/reset")

    assert await finish(http, claimed) == "lost"
    assert await finish(http, await claim_one(http)) == "done"
