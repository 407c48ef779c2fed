"""`job explain`: one sentence for each cause, with a remedy, and data as JSON."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

import pytest
from tests.unit.cli.conftest import HOSTILE, SHOWN

from holdfast.model.explanation import (
    Cause,
    Ended,
    Explanation,
    HolderSilent,
    KeyLimitReached,
    KeyRateLimited,
    LimitReached,
    NextUp,
    NoLongerBlocked,
    NotDue,
    OrderKeyHeld,
    QueuePaused,
    QueueUnserved,
    RateLimited,
    Running,
    TaskPaused,
    TaskUnknown,
    WaitingForJobs,
    WorkersBusy,
)
from holdfast.model.ids import new_id, short_id
from holdfast.model.job import JobState
from holdfast.model.job_facts import HolderFact, ParentFact
from holdfast.reports.explanation_text import words
from holdfast.store.values import WorkerHeartbeat

NOW = datetime.now(UTC)
ID = "01a1de74-f8d6-720e-a5d5-53e8b6fe34b7"
SHORT = short_id(7, ID)


def explained(cause: Cause, state: JobState = JobState.READY) -> Explanation:
    return Explanation(ID, 7, "orders", "charge", state, cause)


def said(cause: Cause, state: JobState = JobState.READY) -> tuple[str, str]:
    matter, remedy = words(explained(cause, state))
    start = f"Job {SHORT} (charge) "
    assert matter.startswith(start)
    return matter.removeprefix(start), remedy


def beat(shop, *tasks: str, queues=None, running: int = 0):
    heartbeat = WorkerHeartbeat("w1", "host", 1, queues, 10, timedelta(seconds=30), running, tasks=tasks)

    async def tell(backend):
        extender = backend.extender()
        extender.heartbeat(heartbeat)
        extender.close()

    shop.within(tell)


# --- the words --------------------------------------------------------------------------------------------------------

BUSY = WorkersBusy(41, is_ahead_capped=False, workers=2, slots=20)
SILENT = HolderSilent("w1", timedelta(seconds=12), NOW + timedelta(seconds=18), is_expired=False, live_workers=1)
HEAD = explained(Running("w1", NOW), JobState.RUNNING)
CAUSES = {
    "ready, but all 2 workers are busy (20 slots), with about 41 jobs ahead": BUSY,
    "ready, but the only worker that can run it is busy (1 slot), with 10,000 or more jobs ahead": WorkersBusy(
        10_000, is_ahead_capped=True, workers=1, slots=1
    ),
    "ready, with no job ahead, and 1 live worker can run it": NextUp(0, is_ahead_capped=False, workers=1),
    "waits because queue orders is paused": QueuePaused("orders"),
    "waits because task charge is paused": TaskPaused("charge"),
    "is due, but no worker is alive": QueueUnserved("orders", 0),
    "no live worker serves queue orders (the 3 live workers serve other queues)": QueueUnserved("orders", 3),
    "no live worker of queue orders knows task charge (w1, w2 do not)": TaskUnknown("orders", "charge", ("w1", "w2")),
    f"the limit of task charge, 1 job at once, is reached by {SHORT} on w1": LimitReached(
        "task", "charge", 1, 1, (HolderFact(ID, 7, "orders", "charge", "w1"),)
    ),
    f"the limit of task charge per key, 2 jobs at once, is reached for key c-3 by {SHORT} on w1": KeyLimitReached(
        "charge", "c-3", 2, 2, (HolderFact(ID, 7, "orders", "charge", "w1"),)
    ),
    "by the rate of task charge per key, 1/s, for key c-3": KeyRateLimited("charge", "c-3", "1/s", NOW),
    "by the rate of queue orders, 3/m": RateLimited("queue", "orders", "3/m", NOW + timedelta(seconds=20)),
    f"waits for the end of 9 jobs, {SHORT} (bill, running) and 8 more": WaitingForJobs(
        9, (ParentFact(ID, 7, "bill", is_running=True),)
    ),
    "is blocked, but nothing that it waited for is left": NoLongerBlocked(),
    "is not due until ": NotDue(NOW + timedelta(minutes=5), 0),
    "has been running on worker w1 since ": Running("w1", NOW),
    "is held by worker w1, without heartbeat for 12s, whose lease ends at ": SILENT,
    f"waits for job {SHORT} (charge), which is before it in order key c-3 and has been running": OrderKeyHeld(
        "c-3", HEAD
    ),
}


@pytest.mark.parametrize("expected", CAUSES)
def test_every_cause_is_one_sentence_with_a_remedy(expected: str):
    matter, remedy = said(CAUSES[expected])
    assert expected in matter
    assert remedy
    assert not re.search(r"[.:] ", matter + remedy)


def test_the_remedy_is_a_command_where_there_is_one():
    assert said(QueuePaused("orders"))[1] == "resume it with `holdfast queue resume orders`"
    assert said(QueueUnserved("orders", 2))[1] == "start one with `holdfast worker run --queues orders`"
    assert f"`holdfast lease reset {SHORT}`" in said(SILENT)[1]
    assert said(NotDue(NOW, 2))[1] == f"it will run again; `holdfast job show {SHORT}` shows how attempt 2 ended"


def test_an_ended_job_is_told_by_its_state():
    assert said(Ended(NOW, None), JobState.COMPLETED)[0].startswith("has completed at ")
    assert " ago) with ValueError" in said(Ended(NOW, "ValueError"), JobState.FAILED)[0]
    assert f"`holdfast job retry {SHORT}`" in said(Ended(NOW, "twice"), JobState.CANCELLED)[1]


def test_no_cause_is_without_words():
    for kind in Cause.__subclasses__():
        assert any(isinstance(cause, kind) for cause in (*CAUSES.values(), Ended(NOW, None))), kind


def test_hostile_names_are_shown_as_visible_escapes():
    assert SHOWN in said(Ended(NOW, HOSTILE), JobState.FAILED)[0]


# --- the command ------------------------------------------------------------------------------------------------------


def test_a_paused_queue_is_named_with_the_command_that_resumes_it(shop):
    job_id = shop.enqueue()
    shop.run("queue", "pause", "orders")
    told = shop.run("job", "explain", job_id[:13]).stdout
    assert re.fullmatch(
        r"Job 1\.\w{4} \(charge\) waits because queue orders is paused: "
        r"resume it with `holdfast queue resume orders`\.\n",
        told,
    )
    beat(shop, "charge")
    shop.run("queue", "resume", "orders")
    assert "1 live worker can run it" in shop.run("job", "explain", job_id).stdout


def test_a_terminal_gets_whole_words_and_whole_commands(shop):
    job_id = shop.enqueue()
    screen = shop.screen("job", "explain", job_id, "--url", shop.url)
    assert " ".join(screen) == shop.run("job", "explain", job_id, "--url", shop.url).stdout.strip()
    assert len(screen) > 1
    assert all(len(line) <= 80 or line.startswith("`holdfast ") for line in screen)
    assert any(f"`holdfast worker run --url {shop.url}`" in line for line in screen)


def test_commands_in_the_remedy_name_the_store_in_use(shop):
    job_id = shop.enqueue()
    told = shop.run("job", "explain", job_id, "--url", shop.url).stdout
    assert f"`holdfast worker run --url {shop.url}`" in told


def test_json_holds_data(shop):
    job_id = shop.enqueue()
    beat(shop, "bill", queues=("orders",))
    assert shop.json("job", "explain", job_id) == {
        "id": job_id,
        "state": "ready",
        "queue": "orders",
        "task": "charge",
        "cause": "task_unknown",
        "details": {"queue": "orders", "task": "charge", "worker_ids": ["w1"]},
        "finding": f"Job {short_id(1, job_id)} (charge) is due, but no live worker of queue orders knows task charge "
        "(w1 does not)",
        "remedy": "start a worker whose app defines the task, or restart these with the current code",
    }


def test_json_of_a_job_behind_another_holds_the_data_of_that_one(shop):
    first = shop.enqueue("charge", "--arg", "order_id=7", "--order-key", "c-3")
    second = shop.enqueue("charge", "--arg", "order_id=7", "--order-key", "c-3")
    shop.claim()
    found = shop.json("job", "explain", second)
    assert (found["cause"], found["details"]["order_key"]) == ("order_key_held", "c-3")
    head = found["details"]["head"]
    assert (head["id"], head["cause"], head["details"]["worker_id"]) == (first, "running", "w1")


def test_the_holders_of_a_limit_are_data(shop):
    shop.enqueue()
    job_id = shop.enqueue()
    held = shop.claim()
    beat(shop, "charge")
    shop.run("queue", "limit", "orders", "--running", "1")
    found = shop.json("job", "explain", job_id)
    assert found["cause"] == "limit_reached"
    assert found["details"]["holders"] == [
        {"job_id": held.id, "seq": held.seq, "queue": "orders", "task": "charge", "worker_id": "w1"}
    ]
    assert "`holdfast queue limit orders --running 2`" in shop.run("job", "explain", job_id).stdout


def test_a_duration_is_a_number_of_seconds(shop, tmp_path):
    job_id = shop.enqueue()
    shop.claim(lease=0.0)
    found = shop.json("job", "explain", job_id)
    assert found["cause"] == "holder_silent"
    assert (found["details"]["silent_seconds"], found["details"]["is_expired"]) == (None, True)


def test_a_job_that_is_not_known_is_an_error(shop):
    shop.run("schema", "install")
    shop.run("job", "explain", new_id(), code=1)


# --- the doctor -------------------------------------------------------------------------------------------------------


def test_the_doctor_names_tasks_that_no_live_worker_knows(shop):
    shop.enqueue()
    beat(shop, "bill")

    def check():
        report = shop.json("doctor")
        return next(check for check in report["checks"] if check["check"] == "tasks")

    assert check()["verdict"] == "warn"
    assert check()["finding"] == "ready jobs whose task no live worker knows: charge (queue orders)"
    shop.run("queue", "pause", "orders")
    assert check()["verdict"] == "ok"
