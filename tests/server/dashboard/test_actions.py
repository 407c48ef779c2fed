"""Forms: what they change, who may send them, and what is recorded of it."""

from __future__ import annotations

import asyncio
import html
import re
from urllib.parse import urlencode

import pytest

from holdfast.errors import OutcomeUnknown, StoreUnavailable
from holdfast.model.job import JobState


def fields_of(text: str, verb: str) -> dict[str, str]:
    """Return the hidden fields of the form with a verb, as its page shows it: those that the page that asks repeats."""
    for form in re.findall(r"<form.*?</form>", text, re.DOTALL):
        fields = dict(re.findall(r'name="(\w+)" value="([^"]*)"', form))
        if fields.get("verb") == verb:
            return fields
    message = f"the page has no form with the verb {verb}"
    raise AssertionError(message)


async def asked_fields(site, path: str, verb: str) -> dict[str, str]:
    """Return the fields of the form with a verb; those of the page that asks, if one does."""
    fields = fields_of(await site.get(path), verb)
    return fields_of(await site.get(f"/ask?{urlencode(fields)}"), verb) if "of" in fields else fields


async def audit_of(site) -> list[tuple[str, str, str]]:
    return [(entry.who, entry.action, entry.target) for entry in await site.app.audit.list()]


async def test_a_failed_job_is_retried_from_its_page(site):
    job_id = await site.failed_job()
    fields = fields_of(await site.get(f"/jobs/{job_id}"), "retry")

    answer = await site.post(f"/jobs/{job_id}", **fields)

    assert answer.headers["location"] == f"/jobs/{job_id}"
    assert await site.app.job(job_id).state() is JobState.READY
    assert await audit_of(site) == [("authorize", "job.retry", job_id)]
    assert "The job is ready again" in await site.get(f"/jobs/{job_id}")
    assert "The job is ready again" not in await site.get(f"/jobs/{job_id}")  # shown once


async def test_an_action_from_a_stale_tab_is_refused(site):
    job_id = await site.failed_job()
    fields = fields_of(await site.get(f"/jobs/{job_id}"), "retry")
    await site.app.jobs.retry(job_id)
    await site.app.drain("mails")  # it fails again, at its second attempt

    answer = await site.post(f"/jobs/{job_id}", 409, **fields)

    assert "has changed since this page was loaded" in answer.text
    assert await site.app.job(job_id).state() is JobState.FAILED
    assert await audit_of(site) == []


async def test_a_lease_is_not_reset_from_a_page_that_shows_an_older_one(site):
    await site.send.enqueue("x")
    (first,) = await site.app.claim("mails", lease=60)
    fields = fields_of(await site.get("/leases"), "reset")
    await first.release()
    (second,) = await site.app.claim("mails", lease=60)

    await site.post(f"/jobs/{first.id}", 409, **fields)

    assert second.id == first.id
    assert len(await site.app.leases()) == 1


@pytest.mark.parametrize(
    ("verb", "state"), [("cancel", JobState.CANCELLED), ("copy", JobState.SCHEDULED), ("run", JobState.READY)]
)
async def test_a_scheduled_job_is_cancelled_copied_or_run_now(site, verb, state):
    job = await site.send.options(delay=600).enqueue("later")
    fields = await asked_fields(site, f"/jobs/{job.id}", verb)

    await site.post(f"/jobs/{job.id}", **fields)

    assert await job.state() is state
    assert len((await site.app.jobs.list("ready")).jobs) == (verb != "cancel")


async def test_a_form_that_enqueues_a_job_does_so_once_however_often_it_is_sent(site):
    job = await site.send.options(delay=600).enqueue("later")
    await site.app.schedules.add("nightly", "send", "30 2 * * *", kwargs={"to": "all"})

    for number, (path, verb) in enumerate([(f"/jobs/{job.id}", "copy"), ("/schedules", "run")], 1):
        fields = await asked_fields(site, path, verb)
        for words in ("is enqueued", "was enqueued already"):
            answer = await site.post(path, **fields)
            assert words in await site.get(answer.headers["location"])
        assert len((await site.app.jobs.list("ready")).jobs) == number
        assert (await asked_fields(site, path, verb))["id"] != fields["id"]


async def test_deleting_a_job_needs_an_admin_and_leads_to_the_list(site):
    job_id = await site.failed_job()
    fields = fields_of(await site.get(f"/jobs/{job_id}"), "delete")

    site.role = "operate"
    assert "Delete" not in await site.get(f"/jobs/{job_id}")
    await site.post(f"/jobs/{job_id}", 403, **fields)
    site.role = "admin"
    answer = await site.post(f"/jobs/{job_id}", **fields)

    assert answer.headers["location"] == "/jobs"
    assert not (await site.app.jobs.list("failed")).jobs


@pytest.mark.parametrize("path", ["/queues", "/tasks"])
async def test_a_queue_or_task_is_paused_and_resumed(site, path):
    await site.send.enqueue("x")
    things = site.app.queues if path == "/queues" else site.app.tasks
    for verb, is_paused in (("pause", True), ("resume", False)):
        await site.post(path, **fields_of(await site.get(path), verb))
        assert [view.paused for view in await things.list()] == [is_paused]

    noun = path[1:-1]
    name = "mails" if noun == "queue" else "send"
    assert await audit_of(site) == [("authorize", f"{noun}.resume", name), ("authorize", f"{noun}.pause", name)]


async def test_a_schedule_is_run_paused_and_resumed(site):
    await site.app.schedules.add("nightly", "send", "30 2 * * *", kwargs={"to": "all"})

    for verb in ("run", "pause", "resume"):
        await site.post("/schedules", **await asked_fields(site, "/schedules", verb))

    assert not (await site.app.schedules.show("nightly")).paused
    assert len((await site.app.jobs.list("ready")).jobs) == 1


async def test_a_reader_sees_no_forms_and_is_refused(site):
    job_id = await site.failed_job()
    fields = fields_of(await site.get(f"/jobs/{job_id}"), "retry")

    site.role = "read"
    for path in ("/", "/jobs?state=failed", f"/jobs/{job_id}", "/queues", "/errors"):
        assert 'name="verb"' not in await site.get(path)
    await site.post(f"/jobs/{job_id}", 403, **fields)

    assert await site.app.job(job_id).state() is JobState.FAILED


async def test_a_form_of_another_site_is_refused(site):
    job_id = await site.failed_job()
    fields = fields_of(await site.get(f"/jobs/{job_id}"), "retry")

    answer = await site.client.post(f"/jobs/{job_id}", data=fields, headers={"origin": "https://evil.example"})

    assert answer.status_code == 403
    assert await site.app.job(job_id).state() is JobState.FAILED


@pytest.mark.parametrize("back", ["https://evil.example", "//evil.example", "/nowhere", ""])
async def test_a_form_leads_back_only_to_a_page_of_this_server(site, back):
    await site.send.enqueue("x")

    answer = await site.post("/queues", verb="pause", name="mails", back=back)

    assert answer.headers["location"] == "/"


@pytest.mark.parametrize(
    ("path", "fields", "status"),
    [
        ("/queues", {"verb": "explode", "name": "mails"}, 422),
        ("/queues", {"verb": "pause"}, 422),
        ("/queues", {"verb": "pause", "name": "no such name"}, 422),
        ("/queues", {"verb": "pause", "name": "x" * 70_000}, 413),
        ("/schedules", {"verb": "pause", "name": "unknown"}, 404),
        ("/preview", {"verb": "retry", "state": "ready"}, 422),
    ],
)
async def test_a_form_that_makes_no_sense_is_refused(site, path, fields, status):
    await site.post(path, status, **fields)


async def test_all_that_match_are_retried_through_a_preview(site):
    await site.send.enqueue_many([{"to": "broken"}] * 120)
    await site.app.drain("mails", 50)
    await site.send.options(delay=600).enqueue("later")

    text = await site.get("/preview?verb=retry&of=all&state=failed&queue=mails&task=")
    assert "Retry 120 jobs" in text
    answer = await site.post("/preview", verb="retry", state="failed", queue="mails", task="")

    assert answer.headers["location"] == "/operations"
    async with asyncio.timeout(20):
        while (await site.app.operations.list())[0].state != "done":  # noqa: ASYNC110 - the server gives no sign
            await asyncio.sleep(0.01)
    assert [view.ready for view in await site.app.queues.list()] == [120]
    assert "120 retried" in await site.get("/operations")
    assert await audit_of(site) == [("authorize", "jobs.retry", "state:failed queue:mails")]


async def test_one_group_of_errors_is_retried_and_no_other_job_of_its_task(site):
    await site.send.enqueue_many([{"to": "x"}] * 6)
    for place, job in enumerate(await site.app.claim("mails", 6, lease=60)):
        await job.fail(ValueError(f"no mailbox {place}" if place < 4 else f"no connection, attempt {place}"))
    text = await site.get("/errors")
    (form,) = [each for each in re.findall(r'<form class="push".*?</form>', text) if "mailbox" in each]
    query = urlencode({name: html.unescape(value) for name, value in re.findall(r'name="(\w+)" value="([^"]*)"', form)})
    assert (await site.get(f"/jobs?{query}")).count("<tr data-key") == 4

    asked = await site.get(f"/preview?{query}")
    assert "Retry 4 failed jobs" in asked
    fields = dict(re.findall(r'name="(\w+)" value="([^"]*)"', asked[asked.index('action="/preview"') :]))
    await site.post("/preview", **{name: html.unescape(value) for name, value in fields.items()})

    async with asyncio.timeout(20):
        while (await site.app.operations.list())[0].state != "done":  # noqa: ASYNC110 - the server gives no sign
            await asyncio.sleep(0.01)
    assert [(view.ready, view.failed) for view in await site.app.queues.list()] == [(4, 2)]
    operations = await site.get("/operations")
    assert "error ValueError: no mailbox 0" in operations
    assert "error=ValueError%3A+no+mailbox+0" in operations


async def test_selected_jobs_are_changed_and_those_that_changed_meanwhile_are_left_alone(site):
    jobs = await site.send.enqueue_many([{"to": "broken"}] * 3)
    await site.app.drain("mails")
    query = "&".join(f"id={job.id}" for job in jobs[:2])
    text = await site.get(f"/preview?verb=retry&of=selected&state=failed&{query}")
    assert "Retry 2 jobs" in text
    await site.app.jobs.retry(jobs[0].id)

    answer = await site.post("/preview", verb="retry", state="failed", id=[job.id for job in jobs[:2]])

    assert answer.headers["location"] == "/jobs?state=failed"
    assert [await job.state() for job in jobs] == ["ready", "ready", "failed"]
    assert "1 job of 2 changed" in await site.get("/jobs?state=failed")


@pytest.mark.parametrize("error", [StoreUnavailable, OutcomeUnknown])
async def test_a_store_that_fails_among_selected_jobs_reveals_nothing_and_what_was_done_is_recorded(
    site, error, monkeypatch, caplog
):
    jobs = await site.send.enqueue_many([{"to": "broken"}] * 3)
    await site.app.drain("mails")
    retry = site.app.jobs.retry

    async def failing(job_id: str) -> object:
        if job_id == jobs[1].id:
            raise error("connect to db.internal as admin")
        return await retry(job_id)

    monkeypatch.setattr(site.app.jobs, "retry", failing)
    answer = await site.post("/preview", verb="retry", state="failed", id=[job.id for job in jobs])

    text = await site.get(answer.headers["location"])
    assert "1 job changed, then: " in text
    assert "db.internal" not in text
    assert "db.internal" in caplog.text
    unknown = [("jobs.retry", jobs[1].id, "outcome unknown")] if error is OutcomeUnknown else []
    entries = [(entry.action, entry.target, entry.detail) for entry in await site.app.audit.list()]
    assert entries == [("jobs.retry", "1 selected job", jobs[0].id), *unknown]


async def test_the_audit_log_names_every_selected_job_that_was_changed_and_no_other(site):
    jobs = await site.send.enqueue_many([{"to": "broken"}] * 50)
    await site.app.drain("mails", 50)
    await site.app.jobs.retry(jobs[0].id)

    await site.post("/preview", verb="retry", state="failed", id=[job.id for job in jobs])

    named = [job_id for entry in await site.app.audit.list() for job_id in entry.detail.split()]
    assert sorted(named) == sorted(job.id for job in jobs[1:])


@pytest.mark.parametrize("job_id", ["x", "../streams", "01a1ef92-8066-7469-9b72"])
async def test_selected_rows_have_ids_of_jobs(site, job_id):
    await site.get(f"/preview?verb=retry&of=selected&state=failed&id={job_id}", 422)
    await site.post("/preview", 422, verb="retry", state="failed", id=job_id)


async def test_a_preview_without_a_selection_says_so(site):
    assert "no job is selected" in await site.get("/preview?verb=retry&of=selected&state=failed", 422)


async def test_the_theme_and_the_keys_are_kept_in_cookies(site):
    await site.post("/preferences", theme="dark", back="/queues")
    await site.post("/preferences", keys="off", back="/queues")

    text = await site.get("/queues")
    assert 'data-theme="dark"' in text
    assert 'data-keys="off"' in text


async def test_the_audit_log_shows_who_did_what(site):
    await site.send.enqueue("x")
    await site.post("/queues", verb="pause", name="mails")

    text = await site.get("/audit")

    assert "queue.pause" in text
    assert "127.0.0.1" in text


ASKED = [
    ("/queues", "pause", "mails", "Pause queue mails?"),
    ("/tasks", "pause", "send", "Pause task send in all queues?"),
    ("/schedules", "pause", "nightly", "Pause schedule nightly?"),
]


@pytest.mark.parametrize(("path", "verb", "name", "question"), ASKED)
async def test_a_pause_is_asked_about_and_shown_with_its_reason(site, path, verb, name, question):
    await site.send.enqueue("x")
    await site.app.schedules.add("nightly", "send", "30 2 * * *", kwargs={"to": "all"})

    asked = await site.get(f"/ask?of={path}&verb={verb}&name={name}&back={path}")
    assert question in asked
    answer = await site.post(path, **fields_of(asked, verb), reason="the mail server is down")

    assert answer.headers["location"] == path
    assert (await site.app.audit.list())[0].detail == "the mail server is down"
    assert "by authorize" in await site.get(path)
    assert "the mail server is down" in await site.get(path)
    await site.post(path, verb="resume", name=name)
    assert "the mail server is down" not in await site.get(path)


async def test_a_job_is_cancelled_with_a_reason_and_a_stale_question_is_refused(site):
    job = await site.send.options(delay=600).enqueue("later")
    fields = fields_of(await site.get(f"/jobs/{job.id}"), "cancel")
    asked = await site.get(f"/ask?{urlencode(fields)}")
    assert "Cancel job" in asked

    await site.app.jobs.cancel(job.id)
    await site.post(f"/jobs/{job.id}", 409, **fields_of(asked, "cancel"), reason="late")
    other = await site.send.options(delay=600).enqueue("later")
    fields = fields_of(await site.get(f"/jobs/{other.id}"), "cancel")
    fields = fields_of(await site.get(f"/ask?{urlencode(fields)}"), "cancel")
    await site.post(f"/jobs/{other.id}", **fields, reason="not wanted")

    assert (await site.app.jobs.show(other.id)).job.reason == "not wanted"


@pytest.mark.parametrize(
    ("role", "path", "status"),
    [
        ("read", "/ask?of=/queues&verb=pause&name=mails", 403),
        ("operate", "/ask?of=/streams&verb=drop_parked&name=billing", 403),
        ("admin", "/ask?of=/queues&verb=resume&name=mails", 422),
        ("admin", "/ask?of=/elsewhere&verb=pause&name=mails", 422),
        ("admin", "/ask?of=/queues&verb=pause", 422),
        ("admin", "/ask?of=//evil.example&verb=pause&name=mails", 422),
        ("admin", "/ask?of=/jobs/../streams&verb=reset&name=billing&to=beginning", 422),
        ("admin", "/ask?of=/jobs/../operations&verb=cancel&name=x", 422),
        ("admin", "/ask?of=/jobs/&verb=cancel", 422),
    ],
)
async def test_nothing_is_asked_that_may_not_or_cannot_be_done(site, role, path, status):
    site.role = role

    await site.get(path, status)


@pytest.mark.parametrize("back", ["https://evil.example", "//evil.example", "javascript:alert(1)"])
async def test_the_way_back_from_a_question_stays_on_this_server(site, back):
    text = await site.get(f"/ask?of=/queues&verb=pause&name=mails&back={back}")

    assert f'href="{back}' not in text


async def test_rows_found_by_their_order_key_can_be_selected_but_not_changed_all_at_once(site):
    await site.send.options(order_key="customer 7").enqueue_many([{"to": "a"}, {"to": "b"}])
    await site.send.options(order_key="customer 8").enqueue("c")

    text = await site.get("/jobs?state=ready&order_key=customer 7")

    assert text.count("<tr data-key") == 1  # the other one is blocked behind it
    assert (await site.get("/jobs?state=blocked&order_key=customer 7")).count("<tr data-key") == 1
    assert "All that match" not in text
    await site.get("/preview?verb=cancel&of=all&state=ready&order_key=customer 7", 422)
    await site.post("/preview", 422, verb="cancel", state="ready", order_key="customer 7")
    assert len((await site.app.jobs.list("ready")).jobs) == 2


async def test_the_jobs_of_a_worker_are_found(site):
    await site.send.enqueue_many([{"to": "a"}, {"to": "b"}])
    await site.app.claim("mails", worker_id="worker-a", lease=60)
    await site.app.claim("mails", worker_id="worker-b", lease=60)

    answer = await site.client.get("/jobs", params={"q": "worker:worker-a state:running"})

    assert answer.headers["location"] == "/jobs?state=running&worker=worker-a"
    assert (await site.get(answer.headers["location"])).count("<tr data-key") == 1
