from __future__ import annotations

import os
import re

import pytest
from tests.unit.cli.conftest import APP, HOSTILE, SHOWN

from holdfast.model.ids import new_id

UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
UTC = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z")


def _state(shop, job_id):
    return shop.json("job", "show", job_id)["state"]


# --- enqueue ----------------------------------------------------------------------------------------------------------


def test_an_enqueue_prints_the_id_and_nothing_else_on_stdout(shop):
    assert UUID.fullmatch(shop.enqueue())


def test_arguments_are_read_as_the_types_that_the_task_names(shop):
    job_id = shop.enqueue("bill", "--args", '{"on": "2026-01-02"}', "--arg", "amount=0.10")
    assert shop.json("job", "show", job_id, "--show-args")["payload"] == [
        [],
        {"on": "2026-01-02", "amount": "0.10"},
    ]


def test_a_call_by_position_is_taken_in_the_form_in_which_it_is_shown(shop):
    job_id = shop.enqueue("place", "--args", "[[7, 8], {}]")
    assert shop.json("job", "show", job_id, "--show-args")["payload"] == [[7, 8], {}]


@pytest.mark.parametrize(
    ("args", "told"),
    [
        (("--arg", "order_id"), "NAME=JSON"),
        (("--arg", "order_id=seven"), "is not JSON"),
        (("--arg", 'order_id="seven"'), "order_id"),
        (("--arg", "order_id=7", "--arg", "size=1"), "size"),
        (("--arg", "order_id=7", "--arg", "order_id=8"), "given twice"),
        (("--args", "7"), "order_id"),
        (("--args", "{"), "--args is not a JSON object"),
        ((), "order_id"),
        (("--arg", "order_id=7", "--header", "x"), "NAME=TEXT"),
        (("--arg", "order_id=7", "--delay", "soon"), "not a duration"),
        (("--arg", "order_id=7", "--timeout", "soon"), "not a duration"),
        (("--arg", "order_id=7", "--run-at", "soon"), "is not a time"),
        (("--arg", "order_id=7", "--run-at", "2126-03-01T00:00:00"), "add Z for UTC"),
        (("--arg", "order_id=7", "--run-at", "2126-03-01T00:00:00Z", "--delay", "5m"), "--delay and --run-at"),
    ],
)
def test_a_call_that_does_not_fit_is_a_matter_of_usage_and_enqueues_nothing(shop, args, told):
    shop.run("schema", "install")
    assert told in shop.run("job", "enqueue", "charge", *APP, *args, code=2).stderr
    assert shop.json("job", "list")["jobs"] == []


def test_an_unknown_task_is_told_with_those_that_are_known(shop):
    assert "registered tasks: bill, charge, place" in shop.run("job", "enqueue", "chagre", *APP, code=2).stderr


def test_the_options_of_a_job_arrive(shop):
    job_id = new_id()
    options = ("--queue", "slow", "--delay", "5m", "--priority", "3", "--max-attempts", "9", "--header", "a=b=c")
    assert shop.enqueue("charge", "--arg", "order_id=7", "--id", job_id, *options) == job_id
    job = shop.json("job", "show", job_id, "--show-args")
    assert (job["state"], job["queue"], job["priority"], job["max_attempts"]) == ("scheduled", "slow", 3, 9)
    assert job["headers"] == {"a": "b=c"}


def test_a_job_runs_at_an_instant_and_within_a_time_limit(shop):
    job_id = shop.enqueue("charge", "--arg", "order_id=7", "--run-at", "2126-03-01T02:00:00+02:00")
    job = shop.json("job", "show", job_id)
    assert (job["state"], job["run_at"]) == ("scheduled", "2126-03-01T00:00:00.000000Z")
    shop.enqueue("charge", "--arg", "order_id=7", "--timeout", "1m30s")
    assert shop.claim().timeout == 90


def test_an_enqueue_repeated_with_its_id_makes_no_second_job_and_says_so(shop):
    job_id = shop.enqueue("charge", "--arg", "order_id=7", "--id", new_id())
    again = shop.run("job", "enqueue", "charge", *APP, "--arg", "order_id=7", "--id", job_id)
    assert again.stdout.strip() == job_id
    assert "already exists" in again.stderr
    assert len(shop.json("job", "list")["jobs"]) == 1


def test_a_unique_key_that_is_held_prints_the_job_that_holds_it_and_says_so(shop):
    job_id = shop.enqueue("charge", "--arg", "order_id=7", "--unique-key", "k", "--unique-for", "1h")
    call = ("job", "enqueue", "charge", *APP, "--arg", "order_id=8", "--unique-key", "k")
    again = shop.run(*call)
    assert (again.stdout.strip(), "holds the unique key: nothing was enqueued" in again.stderr) == (job_id, True)
    assert "has the new arguments" in shop.run(*call, "--on-conflict", "replace").stderr
    shown = shop.json("job", "show", job_id, "--show-args")
    assert (shown["unique_key"], shown["payload"]) == ("k", [[], {"order_id": 8}])
    assert "unique_key" in shop.run("job", "show", job_id).stdout
    assert job_id in shop.run(*call, "--on-conflict", "raise", code=1).stderr
    assert len(shop.json("job", "list")["jobs"]) == 1


def test_the_arguments_of_a_call_are_its_unique_key(shop):
    job_id = shop.enqueue("charge", "--arg", "order_id=7", "--unique")
    assert shop.run("job", "enqueue", "charge", *APP, "--arg", "order_id=7", "--unique").stdout.strip() == job_id
    assert shop.enqueue("charge", "--arg", "order_id=8", "--unique") != job_id
    refused = shop.run("job", "enqueue", "charge", *APP, "--arg", "order_id=7", "--unique-for", "soon", code=2)
    assert "not a duration" in refused.stderr


def test_a_name_that_is_not_allowed_is_a_matter_of_configuration(shop):
    result = shop.run("job", "enqueue", "charge", *APP, "--arg", "order_id=7", "--queue", "a b", code=78)
    assert "queue name" in result.stderr


# --- list and show ----------------------------------------------------------------------------------------------------


def test_a_list_without_a_state_shows_the_first_few_of_every_state_and_says_where_there_is_more(shop):
    for _ in range(8):
        shop.enqueue()
    failed = shop.fail()
    listed = shop.json("job", "list")
    assert [job["state"] for job in listed["jobs"]] == ["failed"] + ["ready"] * 5
    assert listed["jobs"][0]["id"] == failed
    assert (listed["cursor"], listed["more"]) == (None, ["ready"])
    assert shop.run("job", "list").stderr == "There may be more: holdfast job list --state ready\n"


def test_where_there_is_more_of_several_states_each_has_a_command_that_can_be_pasted(shop):
    for _ in range(6):
        shop.enqueue()
        shop.enqueue("charge", "--arg", "order_id=7", "--delay", "5m")
    assert shop.run("job", "list").stderr.splitlines() == [
        "There may be more:",
        "  holdfast job list --state ready",
        "  holdfast job list --state scheduled",
    ]
    narrowed = shop.run("job", "list", "--queue", "orders", "--task", "charge").stderr
    assert "  holdfast job list --state ready --queue orders --task charge\n" in narrowed


def test_the_pages_of_a_state_hold_every_job_once(shop):
    ids = {shop.enqueue() for _ in range(7)}
    seen: list[str] = []
    cursor: tuple[str, ...] = ()
    while True:
        page = shop.json("job", "list", "--state", "ready", "--limit", "3", *cursor)
        seen += [job["id"] for job in page["jobs"]]
        if page["cursor"] is None:
            break
        cursor = ("--cursor", page["cursor"])
    assert len(seen) == len(ids)
    assert set(seen) == ids


def test_a_list_is_narrowed_by_queue_and_task(shop):
    shop.enqueue()
    other = shop.enqueue("place", "--args", "[[7],{}]")
    assert [job["id"] for job in shop.json("job", "list", "--task", "place")["jobs"]] == [other]
    assert [job["id"] for job in shop.json("job", "list", "--queue", "default")["jobs"]] == [other]


@pytest.mark.parametrize("words", [("list",), ("list", "--state", "failed"), ("retry", "--state", "failed", "--yes")])
@pytest.mark.parametrize("option", ["--queue", "--task"])
def test_a_name_that_no_terminal_can_show_is_refused_in_words(shop, words, option):
    shop.enqueue()
    told = shop.run("job", *words, option, os.fsdecode(b"\xff"), code=78).stderr
    assert r"name '\udcff' is invalid: start with an ASCII letter or an underscore" in told


def test_a_cursor_without_a_state_and_a_limit_without_bounds_are_refused(shop):
    assert "--state" in shop.run("job", "list", "--cursor", "1", code=2).stderr
    shop.run("schema", "install")
    for state in ("ready", "failed"):
        assert "invalid cursor='x'" in shop.run("job", "list", "--state", state, "--cursor", "x", code=78).stderr
    shop.run("job", "list", "--limit", "1001", code=2)
    shop.run("job", "list", "--state", "done", code=2)


def test_json_has_the_words_of_the_store_and_instants_in_utc(shop):
    shop.enqueue()
    shop.fail()
    (job,) = shop.json("job", "list")["jobs"]
    assert set(job) == {
        "id", "seq", "queue", "task", "state", "priority", "attempt", "max_attempts", "enqueued_at", "run_at",
        "started_at", "finished_at", "worker_id", "reason", "order_key", "used_attempts", "limit_key",
    }  # fmt: skip
    assert UTC.fullmatch(job["enqueued_at"])
    assert UTC.fullmatch(job["finished_at"])


def test_a_pipe_gets_lines_with_tabs_and_no_colour(shop):
    job_id = shop.enqueue()
    head, row = shop.run("job", "list").stdout.splitlines()
    assert head.split("\t")[:4] == ["id", "state", "queue", "task"]
    assert row.split("\t")[:4] == [job_id, "ready", "orders", "charge"]
    assert UTC.fullmatch(row.split("\t")[5])


def test_arguments_headers_and_results_are_shown_only_when_asked_for(shop):
    job_id = shop.enqueue("charge", "--arg", "order_id=7", "--arg", 'note="s3cret-note"', "--header", "h=s3cret-header")
    shop.complete()
    for words in ((), ("--json",)):
        assert "s3cret" not in shop.run("job", "show", job_id, *words).output
        shown = shop.run("job", "show", job_id, "--show-args", *words).stdout
        assert "s3cret-note" in shown
        assert "s3cret-header" in shown
        assert "done" in shown


def test_a_job_is_shown_with_its_attempts_and_the_last_error(shop):
    shop.enqueue()
    job_id = shop.fail("boom", "Traceback:\n  File 'x'\nValueError: boom")
    shown = shop.run("job", "show", job_id).stdout
    assert "ValueError: boom" in shown
    assert "      File 'x'" in shown
    (attempt,) = shop.json("job", "show", job_id)["attempts"]
    assert (attempt["outcome"], attempt["error_class"], attempt["message"]) == ("failed", "ValueError", "boom")


def test_a_running_job_is_shown_with_its_lease_and_progress(shop):
    job_id = shop.enqueue()
    job = shop.claim(worker_id="w9")
    shop.within(lambda backend: backend.jobs.progress(job.lease, 40, "half"))
    shown = shop.run("job", "show", job_id).stdout
    assert "worker\tw9" in shown
    assert "progress\t40 % half" in shown
    lease = shop.json("job", "show", job_id)["lease"]
    assert lease["fence"] == str(job.fence)
    assert 20 < lease["expires_in_seconds"] <= 30


def test_hostile_text_from_the_store_is_shown_as_visible_escapes(shop):
    shop.enqueue()
    shop.fail(HOSTILE, HOSTILE)
    (job_id,) = [job["id"] for job in shop.json("job", "list")["jobs"]]
    assert SHOWN in shop.run("job", "list").stdout
    assert SHOWN in shop.run("job", "show", job_id).stdout
    for words in (("job", "list"), ("job", "show", job_id), ("job", "show", job_id, "--json")):
        out = shop.run(*words).stdout
        assert not set("\x1b\x00\u202e\u200b\x9b\x7f\u2028") & set(out)
    assert shop.json("job", "show", job_id)["attempts"][0]["message"] == HOSTILE


# --- ids --------------------------------------------------------------------------------------------------------------


def test_an_id_may_be_shortened_to_a_beginning_that_one_job_has(shop):
    job_id = shop.enqueue()
    assert shop.json("job", "show", job_id[:8].upper())["id"] == job_id


def test_a_beginning_of_several_ids_is_refused_with_the_candidates(shop):
    ids = [shop.enqueue() for _ in range(2)]
    for words in (("job", "show"), ("job", "cancel"), ("job", "retry"), ("lease", "reset")):
        told = shop.run(*words, ids[0][:4], code=2).stderr
        assert all(job_id in told for job_id in ids)
    assert len(shop.json("job", "list", "--state", "ready")["jobs"]) == 2


@pytest.mark.parametrize(
    ("given", "code"), [("0", 1), ("01a1de74-f9de-73e7-ae13-34169fbd9dbf", 1), ("xyz", 2), ("-%", 2), ("", 2)]
)
def test_what_is_no_id_and_what_is_no_job_is_told(shop, given, code):
    shop.run("schema", "install")
    shop.run("job", "show", "--", given, code=code)
    shop.run("job", "cancel", "--", given, code=code)
    shop.run("job", "retry", "--", given, code=code)


# --- cancel and retry -------------------------------------------------------------------------------------------------


def test_a_waiting_job_is_cancelled_with_its_reason(shop):
    job_id = shop.enqueue()
    assert shop.run("job", "cancel", job_id, "--reason", "ordered twice").stdout == f"{job_id} cancelled\n"
    assert shop.json("job", "show", job_id)["reason"] == "ordered twice"


def test_cancelling_what_runs_asks_and_what_has_ended_is_too_late(shop):
    running, completed = shop.enqueue(), None
    shop.claim()
    told = shop.run("job", "cancel", running).stdout
    assert told == f"{running} is running: its worker, if it has one, will cancel it; it may still complete\n"
    completed = shop.enqueue()
    shop.complete()
    assert "has already ended" in shop.run("job", "cancel", completed, code=1).stderr


def test_a_failed_and_a_cancelled_job_are_retried(shop):
    shop.enqueue()
    failed = shop.fail()
    cancelled = shop.enqueue()
    shop.run("job", "cancel", cancelled)
    for job_id in (failed, cancelled):
        assert shop.run("job", "retry", job_id).stdout == f"{job_id} retried\n"
        assert _state(shop, job_id) == "ready"
        assert "is ready" in shop.run("job", "retry", job_id, code=1).stderr


def test_a_completed_job_is_copied_under_a_new_id_only_with_again(shop):
    job_id = shop.enqueue("charge", "--arg", "order_id=7", "--priority", "4", "--header", "a=b")
    shop.complete()
    assert "--again" in shop.run("job", "retry", job_id, code=1).stderr
    copy = shop.run("job", "retry", job_id, "--again").stdout.split()[-1]
    assert copy != job_id
    assert _state(shop, job_id) == "completed"
    job = shop.json("job", "show", copy, "--show-args")
    assert (job["state"], job["priority"], job["headers"]) == ("ready", 4, {"a": "b"})
    assert job["payload"] == [[], {"order_id": 7}]


def test_several_jobs_are_changed_only_with_yes_where_nobody_can_be_asked(shop):
    ids = [shop.enqueue() for _ in range(3)]
    refused = shop.run("job", "cancel", *ids, code=2)
    assert "Cancel 3 jobs?" in refused.stderr
    assert "--yes" in refused.stderr
    assert {_state(shop, job_id) for job_id in ids} == {"ready"}
    shop.run("job", "cancel", *ids, "--yes")
    assert "Retry 3 jobs?" in shop.run("job", "retry", *ids, code=2).stderr
    shop.run("job", "retry", *ids, "--yes")
    assert {_state(shop, job_id) for job_id in ids} == {"ready"}


def test_an_id_given_twice_is_one_job(shop):
    job_id = shop.enqueue()
    assert shop.run("job", "cancel", job_id, job_id[:10]).stdout == f"{job_id} cancelled\n"


def test_one_job_that_cannot_be_changed_does_not_stop_the_others(shop):
    job_id = shop.enqueue()
    result = shop.run("job", "cancel", new_id(), job_id, "--yes", code=1)
    assert f"{job_id} cancelled" in result.stdout
    assert "no job has the id" in result.stderr


def test_all_jobs_of_a_state_are_retried_after_consent_alone(shop):
    for _ in range(3):
        shop.enqueue()
        shop.fail()
    assert (
        "Retry 3 jobs (failed of task charge)?"
        in shop.run("job", "retry", "--state", "failed", "--task", "charge", code=2).stderr
    )
    assert (
        "No jobs of queue other are failed"
        in shop.run("job", "retry", "--state", "failed", "--queue", "other", "--yes").stderr
    )
    assert shop.run("job", "retry", "--state", "failed", "--yes").stdout == "3 jobs retried\n"
    assert [job["state"] for job in shop.json("job", "list")["jobs"]] == ["ready"] * 3


def test_more_failed_jobs_than_a_page_holds_are_all_retried_once(shop, monkeypatch):
    monkeypatch.setattr("holdfast.app.bulk._PAGE", 2)
    for _ in range(5):
        shop.enqueue()
        shop.fail()
    assert shop.run("job", "retry", "--state", "failed", "--yes").stdout == "5 jobs retried\n"
    assert len(shop.json("job", "list", "--state", "ready")["jobs"]) == 5


@pytest.mark.parametrize(
    "words",
    [(), ("01", "--state", "failed"), ("01", "--queue", "a"), ("--state", "failed", "--again"), ("--state", "ready")],
)
def test_a_retry_that_says_two_things_or_nothing_is_refused(shop, words):
    shop.run("job", "retry", *words, code=2)


def test_the_successful_attempt_is_shown_after_those_that_failed(shop):
    job_id = shop.enqueue()
    shop.fail()
    shop.run("job", "retry", job_id)
    assert "attempt\t1, used 0 of 2" in shop.run("job", "show", job_id).stdout
    shop.complete()
    attempts = shop.json("job", "show", job_id)["attempts"]
    assert [(each["attempt"], each["outcome"]) for each in attempts] == [(1, "failed"), (2, "completed")]
    shown = shop.run("job", "show", job_id).stdout
    assert "attempt\t2, used \N{EN DASH} (not kept after completion)" in shown
    assert re.search(r"^2\tcompleted\t", shown, re.MULTILINE)


def test_a_failed_job_shows_how_many_attempts_counted(shop):
    job_id = shop.enqueue()
    for _ in range(2):
        shop.fail()
        shop.run("job", "retry", job_id)
    shop.fail()
    assert "attempt\t3, used 1 of 2" in shop.run("job", "show", job_id).stdout
    assert shop.json("job", "show", job_id)["used_attempts"] == 1
