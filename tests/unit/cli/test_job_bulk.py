"""`holdfast job cancel` and `holdfast job delete`: what they select, what they ask, what they leave alone."""

from __future__ import annotations

import pytest
from tests.unit.cli.test_hints import suggested

from holdfast import StoreUnavailable
from holdfast.backends.sqlite.jobs import SqliteJobs


def _states(shop) -> dict[str, str]:
    return {job["id"]: job["state"] for job in shop.json("job", "list", "--limit", "100")["jobs"]}


def test_all_waiting_jobs_of_a_queue_are_cancelled_and_running_ones_are_not(shop):
    running = shop.claim().id if shop.enqueue() else ""
    ready, late = shop.enqueue(), shop.enqueue("charge", "--arg", "order_id=7", "--delay", "1h")
    other = shop.enqueue("charge", "--arg", "order_id=7", "--queue", "other")
    result = shop.run("job", "cancel", "--queue", "orders", "--yes", "--reason", "closed")
    assert result.stdout == "2 jobs cancelled\n"
    assert _states(shop) == {running: "running", ready: "cancelled", late: "cancelled", other: "ready"}
    assert shop.json("job", "show", ready)["reason"] == "closed"


def test_running_jobs_are_cancelled_only_by_their_state(shop):
    shop.enqueue()
    shop.claim()
    result = shop.run("job", "cancel", "--state", "running", "--yes")
    assert result.stdout.startswith("0 jobs cancelled\n1 running job will be cancelled by the workers")


def test_the_question_counts_the_jobs_of_each_state(shop):
    shop.enqueue()
    shop.enqueue()
    shop.enqueue("charge", "--arg", "order_id=7", "--delay", "1h")
    told = shop.run("job", "cancel", "--task", "charge", code=2).stderr
    assert "Cancel 3 jobs (1 scheduled of task charge, 2 ready of task charge)?" in told
    assert "add --yes" in told
    assert sorted(_states(shop).values()) == ["ready", "ready", "scheduled"]


def test_finished_jobs_are_deleted_by_id_after_a_confirmation(shop):
    shop.enqueue()
    failed = shop.fail()
    assert "Delete 1 job for good?" in shop.run("job", "delete", failed, code=2).stderr
    assert shop.run("job", "delete", failed[:20], "--yes").stdout == f"{failed} deleted\n"
    assert "no job has the id" in shop.run("job", "delete", failed, "--yes", code=1).stderr


def test_a_job_that_has_not_ended_is_not_deleted_and_the_remedy_can_be_pasted(shop):
    job_id = shop.enqueue()
    told = shop.run("job", "delete", job_id, "--yes", "--url", shop.url, code=1).stderr
    assert "only finished jobs can be deleted" in told
    assert suggested(told) == [f"holdfast job cancel {job_id} --url {shop.url}"]
    assert _states(shop) == {job_id: "ready"}


def test_finished_jobs_are_deleted_by_filter(shop):
    for _ in range(4):
        shop.enqueue()
    failed, done = [shop.fail(), shop.fail()], shop.complete()
    kept = next(job_id for job_id, state in _states(shop).items() if state == "ready")
    assert (
        "No jobs of queue nope are failed" in shop.run("job", "delete", "--state", "failed", "--queue", "nope").stderr
    )
    assert shop.run("job", "delete", "--older-than", "1h", "--yes").stdout == ""
    assert "Delete 2 jobs (failed)?" in shop.run("job", "delete", "--state", "failed", code=2).stderr
    assert shop.run("job", "delete", "--state", "failed", "--yes").stdout == "2 jobs deleted\n"
    assert set(_states(shop)) == {done, kept}
    assert shop.run("job", "delete", "--task", "charge", "--yes").stdout == "1 job deleted\n"
    assert set(_states(shop)) == {kept}
    assert set(failed).isdisjoint(_states(shop))


def test_what_is_retried_after_the_question_is_not_deleted(shop, at_the_question):
    shop.enqueue()
    failed = shop.fail()
    questions = at_the_question(lambda: shop.within(lambda backend: backend.jobs.retry(failed)))
    assert shop.run("job", "delete", "--state", "failed").stdout == "0 jobs deleted\n"
    assert questions == ["Delete 1 job (failed)?"]
    assert _states(shop) == {failed: "ready"}


@pytest.mark.parametrize("verb", ["cancel", "delete"])
def test_jobs_are_named_by_id_or_by_filter_not_both_and_not_neither(shop, verb):
    for words in ((), ("01", "--queue", "orders")):
        assert "or options that select them" in shop.run("job", verb, *words, code=2).stderr


@pytest.mark.parametrize(("verb", "state"), [("cancel", "failed"), ("delete", "running"), ("delete", "ready")])
def test_a_state_in_which_nothing_can_be_changed_is_refused(shop, verb, state):
    assert "is not one of" in shop.run("job", verb, "--state", state, code=2).stderr


@pytest.mark.parametrize(
    ("words", "verb"),
    [
        (("job", "cancel", "--queue", "orders", "--yes"), "cancel_all"),
        (("job", "delete", "--state", "failed", "--yes"), "delete"),
        (("job", "retry", "--state", "failed", "--yes"), "retry"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_is_broken_off_says_how_much_was_done_and_a_repeat_does_the_rest(shop, monkeypatch, words, verb):
    for _ in range(3):
        shop.enqueue()
        if verb != "cancel_all":
            shop.fail()
    calls: list[object] = []
    real = getattr(SqliteJobs, verb)

    async def breaks(self, *args):
        calls.append(args)
        if len(calls) == 2:
            raise StoreUnavailable("the store went away")
        return await real(self, *args)

    monkeypatch.setattr("holdfast.app.bulk.BATCH", 1)
    monkeypatch.setattr(SqliteJobs, verb, breaks)
    broken = shop.run(*words, code=69)
    assert broken.stdout.startswith("1 job ")
    assert "the store went away" in broken.stderr
    assert shop.run(*words).stdout.startswith("2 jobs ")


def test_an_age_beyond_all_calendars_selects_nothing(shop):
    shop.enqueue()
    shop.fail()
    answer = shop.run("job", "delete", "--older-than", "999999d", "--yes").stderr
    assert set(answer.removeprefix("No jobs are ").removesuffix(".\n").split(" or ")) == {
        *("completed", "failed", "cancelled")
    }
