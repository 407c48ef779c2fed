"""Leases over HTTP: a worker in any language is fenced like a worker in Python."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import httpx
import pytest
from tests.server.conftest import claim_one, client_of
from tests.server.test_jobs import enqueue, finish

from holdfast import App
from holdfast.app.app import App as AppClass
from holdfast.hooks.values import JobRescue
from holdfast.reports.doctor import examine
from holdfast.reports.finding import FindingLevel
from holdfast.server import asgi, extending
from holdfast.server.api.lease_schemas import MAX_LEASES
from holdfast.server.attempts import RemoteAttempts


async def verdict_of(response: httpx.Response) -> Any:
    assert response.status_code == 200, response.text
    return response.json()["verdicts"][0]["verdict"]


async def test_a_claim_returns_what_a_worker_needs(http):
    job_id = await enqueue(http, headers={"trace": "x"}, timeout_seconds=9)

    claimed = await claim_one(http, worker_id="shell-1", lease_seconds=60)

    assert claimed["lease_seconds"] == 60
    assert claimed["lease"]["job_id"] == claimed["job"]["id"] == job_id
    assert claimed["lease"]["fence"].isdigit()
    assert (claimed["job"]["args"], claimed["job"]["kwargs"]) == ([], {"order_id": 7})
    assert (claimed["job"]["headers"], claimed["job"]["timeout_seconds"]) == ({"trace": "x"}, 9)
    assert (claimed["job"]["attempt"], claimed["job"]["is_last_attempt"]) == (1, False)
    (lease,) = (await http.get("/v1/leases")).json()["leases"]
    assert (lease["worker_id"], lease["fence"]) == ("shell-1", claimed["lease"]["fence"])


async def test_the_workers_that_a_server_remembers_are_bounded(sqlite_app: App, monkeypatch):
    monkeypatch.setattr(extending, "_MOST_WORKERS", 3)
    server = asgi(sqlite_app)
    async with client_of(server) as http:
        for name in ("a", "b", "c", "a", "d", "e"):
            body = {"queues": ["orders"], "tasks": ["charge"], "lease_seconds": 43200}
            assert (await http.put(f"/v1/workers/{name}", json=body)).status_code == 200
    await server.state.holdfast.close()

    assert list(server.state.holdfast.extending._workers) == ["a", "d", "e"]


async def test_a_claim_without_a_wait_answers_at_once_with_nothing(http):
    response = await http.post("/v1/leases/claim", json={"queues": ["orders"], "tasks": ["charge"]})

    assert (response.status_code, response.json()) == (200, {"leases": []})


async def test_a_worker_that_names_itself_is_listed_while_it_waits_and_works(http, app: App, monkeypatch):
    monkeypatch.setattr(extending, "_RAREST", 0.0)
    job_id = await enqueue(http)
    claimed = await claim_one(http, worker_id="shell-1", lease_seconds=2, limit=3)
    (seen,) = await app.workers()
    assert (seen.heartbeat.worker_id, seen.heartbeat.queues, seen.running) == ("shell-1", ("orders",), 1)
    assert (seen.heartbeat.tasks, seen.heartbeat.host, seen.heartbeat.concurrency) == (("charge",), "127.0.0.1", 3)

    async with asyncio.timeout(10):
        while (await app.workers())[0].silent.total_seconds() < 0.6:  # noqa: ASYNC110 - the store's clock
            await asyncio.sleep(0.05)
    body = {"leases": [{"lease": claimed["lease"]}], "worker_id": "shell-1"}
    assert await verdict_of(await http.post("/v1/leases/extend", json=body)) == "extended"
    assert (await app.workers())[0].silent.total_seconds() < 0.5

    await finish(http, claimed)
    waiting = asyncio.create_task(claim_one(http, worker_id="shell-1", lease_seconds=2, wait_seconds=20))
    await asyncio.sleep(2.5)  # longer than its lease
    assert (await app.workers())[0].silent.total_seconds() < 2
    await enqueue(http)
    last = await waiting
    assert last["job"]["id"] != job_id
    await finish(http, last)
    async with asyncio.timeout(20):  # it does not say that it stops
        while (await http.get("/v1/workers")).json()["workers"][0]["state"] == "live":  # noqa: ASYNC110 - as a client does
            await asyncio.sleep(0.1)
    assert (await http.get("/v1/workers")).json()["workers"][0]["state"] == "stopped"
    assert [finding.verdict for finding in await examine(app) if finding.check == "workers"] == [FindingLevel.OK]


async def test_a_stale_fence_writes_nothing_and_a_repeat_is_answered_as_before(http, app: App):
    await enqueue(http)
    old = await claim_one(http)
    await app.jobs.reset(old["job"]["id"])
    new = await claim_one(http)

    assert await finish(http, old, result=1) == "lost"
    assert [await finish(http, new, result=2) for _ in range(2)] == ["done", "done"]
    assert (await http.get(f"/v1/jobs/{new['job']['id']}/result")).json()["result"] == 2
    fences = [one["lease"]["fence"] for one in (old, new)]
    shown = (await http.get(f"/v1/jobs/{new['job']['id']}")).json()["attempts"]
    assert [attempt["fence"] for attempt in shown] == fences
    page = (await http.get(f"/jobs/{new['job']['id']}")).text
    assert [f'class="right id">{fence}</td>' in page for fence in fences] == [True, True]


async def test_each_item_has_its_own_verdict(http, app: App):
    for _ in range(3):
        await enqueue(http)
    response = await http.post("/v1/leases/claim", json={"queues": ["orders"], "tasks": ["charge"], "limit": 3})
    leases = [one["lease"] for one in response.json()["leases"]]
    await app.jobs.reset(leases[1]["job_id"])

    items = [{"lease": lease, "outcome": "complete"} for lease in leases]
    answer = (await http.post("/v1/leases/finish", json={"leases": items})).json()

    assert [one["verdict"] for one in answer["verdicts"]] == ["done", "lost", "done"]


async def test_a_fence_that_no_store_can_hold_is_lost_and_the_other_items_are_written(http):
    for _ in range(2):
        await enqueue(http)
    response = await http.post("/v1/leases/claim", json={"queues": ["orders"], "tasks": ["charge"], "limit": 2})
    leases = [one["lease"] for one in response.json()["leases"]]
    leases[0] = leases[0] | {"fence": "9999999999999999999"}

    async def verdicts(verb: str, items: Any) -> Any:
        response = await http.post(f"/v1/leases/{verb}", json={"leases": items})
        assert response.status_code == 200, response.text
        return [one["verdict"] for one in response.json()["verdicts"]]

    assert await verdicts("extend", [{"lease": lease} for lease in leases]) == ["lost", "extended"]
    retry = {"outcome": "retry", "error": {"message": "no"}}
    assert await verdicts("finish", [{"lease": leases[0], **retry}]) == ["lost"]
    assert await verdicts("finish", [{"lease": lease, "outcome": "complete"} for lease in leases]) == ["lost", "done"]
    assert await verdicts("release", leases) == ["lost", "lost"]
    one = f"/v1/jobs/{leases[0]['job_id']}"
    fence = {"fence": leases[0]["fence"]}
    assert (await http.post(f"{one}/extend", json=fence)).status_code == 409
    assert (await http.post(f"{one}/finish", json={**fence, "outcome": "complete"})).status_code == 409


@pytest.mark.parametrize("claimed_elsewhere", [False, True])
async def test_a_lease_counts_only_for_its_own_job(http, app: App, *, claimed_elsewhere: bool):
    app.hooks.job_start(lambda _: None)  # the server keeps what is claimed from it
    await enqueue(http)
    if claimed_elsewhere:
        async with client_of(asgi(app)) as other:
            lease = (await claim_one(other))["lease"]
    else:
        lease = (await claim_one(http))["lease"]
    wrong = lease | {"job_id": await enqueue(http)}

    for verb, more in (("extend", {}), ("finish", {"outcome": "complete"})):
        for each, verdict in ((wrong, "lost"), (lease, "extended" if verb == "extend" else "done")):
            response = await http.post(f"/v1/leases/{verb}", json={"leases": [{"lease": each, **more}]})
            assert await verdict_of(response) == verdict
    assert [(await app.jobs.show(each["job_id"])).job.state for each in (lease, wrong)] == ["completed", "ready"]


async def test_a_retry_follows_the_policy_until_the_attempts_are_used_up(http, app: App):
    job_id = await enqueue(http, max_attempts=2)
    error = {"class": "CardDeclined", "message": "no funds", "traceback": "at pay (pay.js:3)"}

    first = await claim_one(http)
    verdicts = [await finish(http, first, "retry", error=error) for _ in range(2)]  # the second repeats the first
    after_first = await app.jobs.show(job_id)
    await app.jobs.cancel(job_id)
    await app.jobs.retry(job_id)
    last = await claim_one(http)
    assert await finish(http, last, "retry", error=error, delay_seconds=0) == "done"
    again = await claim_one(http, wait_seconds=10)
    assert again["job"]["is_last_attempt"]
    verdicts += [await finish(http, again, "retry", error=error) for _ in range(2)]

    assert verdicts == ["done"] * 4
    assert (after_first.job.state, after_first.attempts[0].error_class) == ("scheduled", "CardDeclined")
    assert after_first.attempts[0].traceback == "at pay (pay.js:3)"
    waits = (after_first.job.run_at - after_first.attempts[0].ended_at).total_seconds()
    assert 30 <= waits <= 61  # the task of the app has retry=60
    assert (await app.jobs.show(job_id)).job.state == "failed"


async def test_a_snooze_uses_no_attempt_and_a_cancel_ends_the_job(http, app: App):
    job_id = await enqueue(http, max_attempts=1)

    assert await finish(http, await claim_one(http), "snooze", delay_seconds=0) == "done"
    assert await finish(http, await claim_one(http, wait_seconds=10), "cancel", reason="closed") == "done"

    job = (await app.jobs.show(job_id)).job
    assert (job.state, job.reason) == ("cancelled", "closed")


async def test_a_script_sees_by_the_status_whether_its_lease_is_lost(http, app: App):
    job_id = await enqueue(http)
    old = await claim_one(http, lease_seconds=2)
    extension = {"fence": old["lease"]["fence"], "lease_seconds": 500, "progress": {"percent": 30}}
    kept = await http.post(f"/v1/jobs/{job_id}/extend", json=extension)
    (lease,) = await app.leases()
    await app.jobs.reset(job_id)
    lost = await http.post(f"/v1/jobs/{job_id}/extend", json=extension)
    fence = (await claim_one(http))["lease"]["fence"]
    end = {"outcome": "complete", "result": 7}
    refused = await http.post(f"/v1/jobs/{job_id}/finish", json={"fence": extension["fence"], **end})
    wrong = await http.post(f"/v1/jobs/{job_id}/finish", json={"fence": fence, "outcome": "snooze"})
    done = [await http.post(f"/v1/jobs/{job_id}/finish", json={"fence": fence, **end}) for _ in range(2)]

    assert kept.json() == {"job_id": job_id, "verdict": "extended", "lease_seconds": 500}
    assert (lease.percent, lease.expires_in.total_seconds() > 400) == (30, True)
    for answer in (lost, refused):
        assert (answer.status_code, answer.json()["type"]) == (409, "/v1/problems/lease-lost")
    assert (wrong.status_code, "needs delay_seconds" in wrong.json()["detail"]) == (422, True)
    assert [(each.status_code, each.json()["verdict"]) for each in done] == [(200, "done")] * 2
    assert (await http.get(f"/v1/jobs/{job_id}/result")).json()["result"] == 7


async def test_a_worker_registers_itself_before_its_first_claim(http, app: App):
    report = {"queues": ["orders"], "tasks": ["charge"], "concurrency": 4, "host": "shop-1", "pid": 31}
    answer = await http.put("/v1/workers/shell-1", json=report)
    (seen,) = await app.workers()

    assert (answer.status_code, answer.json()) == (200, {"worker_id": "shell-1"})
    assert (seen.heartbeat.host, seen.heartbeat.pid, seen.heartbeat.concurrency) == ("shop-1", 31, 4)
    assert (seen.heartbeat.queues, seen.heartbeat.tasks) == (("orders",), ("charge",))


async def test_a_released_job_is_ready_again(http):
    job_id = await enqueue(http)
    claimed = await claim_one(http)

    for verdict in ("done", "lost"):
        response = await http.post("/v1/leases/release", json={"leases": [claimed["lease"]]})
        assert await verdict_of(response) == verdict
    assert (await claim_one(http))["job"]["id"] == job_id


async def test_an_extension_reports_progress_and_says_when_to_stop(http, app: App):
    job_id = await enqueue(http)
    claimed = await claim_one(http, lease_seconds=2)
    item = {"lease": claimed["lease"], "progress": {"percent": 40, "note": "halfway"}}

    async def extend() -> Any:
        return await verdict_of(await http.post("/v1/leases/extend", json={"leases": [item], "lease_seconds": 500}))

    assert await extend() == "extended"
    (lease,) = await app.leases()
    assert (lease.percent, lease.note) == (40, "halfway")
    assert lease.expires_in.total_seconds() > 400
    await app.jobs.cancel(job_id)
    assert await extend() == "cancel"
    await app.jobs.reset(job_id)
    assert await extend() == "lost"


async def test_the_lease_of_a_silent_worker_is_rescued_by_the_server(http, app: App):
    job_id = await enqueue(http)
    rescues: list[JobRescue] = []
    app.hooks.job_rescue(rescues.append)
    first = await claim_one(http, lease_seconds=2, worker_id="silent")

    second = await claim_one(http, wait_seconds=20, worker_id="other")

    assert (second["job"]["id"], second["job"]["attempt"]) == (job_id, 2)
    assert int(second["lease"]["fence"]) > int(first["lease"]["fence"])
    assert await finish(http, first) == "lost"
    assert (await app.jobs.show(job_id)).attempts[0].outcome == "rescued"
    assert [(rescue.worker_id, len(rescue.jobs)) for rescue in rescues] == [("silent", 1)]


async def test_hooks_see_the_attempts_of_workers_over_http(server, http, app: App, monkeypatch):
    seen: list[tuple[str, str, str]] = []
    app.hooks.job_start(lambda start: seen.append((start.job.id, "start", start.worker_id)))
    app.hooks.job_end(lambda end: seen.append((end.job.id, "end", end.outcome)))
    app.hooks.job_fail(lambda end: seen.append((end.job.id, "fail", end.failure.error_class if end.failure else "")))
    app.hooks.lease_lose(lambda loss: seen.append((loss.job.id, "lose", loss.found_by)))
    error = {"class": "CardDeclined", "message": "no funds"}

    async def begun() -> Any:
        await enqueue(http)
        claimed = await claim_one(http, worker_id="shell-1", lease_seconds=600)
        return claimed, claimed["job"]["id"]

    async def reported(job_id: str) -> list[tuple[str, str]]:
        assert seen[0] == (job_id, "start", "shell-1")
        found = [(what, word) for job, what, word in seen[1:] if job == job_id]
        seen.clear()
        return found

    claimed, job_id = await begun()
    for _ in range(2):
        assert await finish(http, claimed) == "done"  # the second repeats the first
    assert await reported(job_id) == [("end", "completed")]

    claimed, job_id = await begun()
    await finish(http, claimed, "fail", error=error)
    assert await reported(job_id) == [("end", "failed"), ("fail", "CardDeclined")]

    claimed, job_id = await begun()
    await http.post("/v1/leases/release", json={"leases": [claimed["lease"]]})
    assert await reported(job_id) == [("end", "aborted")]
    await app.jobs.cancel(job_id)

    for verb, body in (("extend", {"lease": None}), ("finish", {"lease": None, "outcome": "complete"})):
        claimed, job_id = await begun()
        await app.jobs.reset(job_id)
        await app.jobs.cancel(job_id)
        answer = await http.post(f"/v1/leases/{verb}", json={"leases": [body | {"lease": claimed["lease"]}]})
        assert await verdict_of(answer) == "lost"
        assert await reported(job_id) == [("end", "aborted"), ("lose", verb)]

    attempts: RemoteAttempts = server.state.holdfast.attempts
    now = time.monotonic() + 2  # the maintenance looked a moment ago
    monkeypatch.setattr(attempts, "_clock", lambda: now)
    elsewhere, ended_id = await begun()
    silent, silent_id = await begun()
    async with client_of(asgi(app)) as other:
        await finish(other, elsewhere)
    await attempts.expire()
    assert {what for _, what, _ in seen} == {"start"}
    monkeypatch.setattr(attempts, "_clock", lambda: now + 1000)
    await attempts.expire()
    await attempts.expire()
    assert [one for one in seen if one[1] == "end"] == [(ended_id, "end", "completed"), (silent_id, "end", "lost")]
    assert await finish(http, silent) == "done"  # its lease was not rescued: the store decides, not the report


async def test_the_jobs_of_a_client_that_went_away_are_not_leased(server, app: App, monkeypatch: pytest.MonkeyPatch):
    async with client_of(server) as http:
        waiting = asyncio.create_task(claim_one(http, wait_seconds=20))
        await asyncio.sleep(0.05)
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        job_id = await enqueue(http)
        await asyncio.sleep(0.3)

        assert (await claim_one(http))["job"]["id"] == job_id
        assert (await app.jobs.show(job_id)).job.attempt == 1


async def test_a_claim_is_refused_while_the_queue_is_paused(http):
    await enqueue(http)
    await http.post("/v1/queues/orders/pause")
    response = await http.post("/v1/leases/claim", json={"queues": ["orders"], "tasks": ["charge"], "wait_seconds": 1})
    assert response.json() == {"leases": []}

    waiting = asyncio.create_task(claim_one(http, wait_seconds=20))
    await http.post("/v1/queues/orders/resume")

    assert (await waiting)["job"]["attempt"] == 1


@pytest.mark.parametrize(
    ("item", "word"),
    [
        ({"outcome": "complete", "reason": "x"}, "has no reason"),
        ({"outcome": "retry"}, "needs error"),
        ({"outcome": "fail", "error": {"message": "x"}, "delay_seconds": 3}, "has no delay_seconds"),
        ({"outcome": "snooze"}, "needs delay_seconds"),
        ({"outcome": "done"}, "Invalid enum value"),
    ],
)
async def test_an_outcome_with_wrong_fields_is_refused_and_nothing_written(sqlite_app: AppClass, item: Any, word: str):
    async with client_of(asgi(sqlite_app)) as http:
        lease = {"job_id": "0" * 8 + "-0000-7000-8000-" + "0" * 12, "seq": 1, "fence": "1"}
        response = await http.post("/v1/leases/finish", json={"leases": [{"lease": lease, **item}]})
        many = await http.post("/v1/leases/release", json={"leases": [lease] * (MAX_LEASES + 1)})

    assert (response.status_code, many.status_code) == (422, 422)
    assert word in response.json()["detail"]
