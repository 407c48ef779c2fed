"""Names and options that cannot work are refused where they are given, with the remedy, and nothing is enqueued."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest
from tests.app.work import total
from tests.unit.model.test_instants import Nowhere

from holdfast import App, ConfigError, JobNotFound, PayloadError

NAIVE = datetime(2030, 1, 1)  # noqa: DTZ001 - naive on purpose
HOSTILE_NAMES = [
    "'; drop table holdfast_job; --",
    'a"b',
    "a'b",
    "a\nb",
    "a\0b",
    "a b",
    "a;b",
    "a\\b",
    "$$",
    "1st",
    "-first",
    "",
    "é",
    "ord\u0435rs",  # a Cyrillic look-alike
    "\ud800",
    "name\n",
]


@pytest.fixture
def task(app: App):
    @app.task(queue="mail")
    async def send(n: int) -> None: ...

    return send


@pytest.mark.parametrize(
    ("options", "remedy"),
    [
        ({"delay": -1}, "a duration cannot be negative, pass 0 or more"),
        ({"delay": timedelta(seconds=-1)}, "a duration cannot be negative, pass 0 or more"),
        ({"delay": float("nan")}, "pass seconds as a finite number"),
        ({"delay": 1e12}, "numbers are seconds, not milliseconds"),
        ({"delay": "60"}, "pass seconds as a number, or a timedelta"),
        ({"run_at": NAIVE}, "pass an aware datetime, for example"),
        ({"run_at": datetime(2030, 1, 1, tzinfo=Nowhere())}, "pass an aware datetime, for example"),
        ({"run_at": datetime.max.replace(tzinfo=timezone(timedelta(hours=-12)))}, "pass an instant within that range"),
        ({"run_at": datetime.min.replace(tzinfo=timezone(timedelta(hours=12)))}, "pass an instant within that range"),
        ({"delay": 1, "run_at": datetime.now(UTC)}, "choose one"),
        ({"run_at": "2030-01-01T00:00:00Z"}, "pass an aware datetime"),
        ({"run_at": 1_900_000_000}, "pass an aware datetime"),
        ({"max_attempts": 0}, "a whole number from 1 to"),
        ({"max_attempts": True}, "a whole number from 1 to"),
        ({"max_attempts": 2.5}, "a whole number from 1 to"),
        ({"max_attempts": 10**9}, "a whole number from 1 to"),
        ({"priority": 10**9}, "a whole number from -100000 to 100000"),
        ({"priority": "high"}, "a whole number from -100000 to 100000"),
        ({"timeout": 0}, "pass seconds, or None for no limit"),
        ({"timeout": -1}, "a duration cannot be negative"),
        ({"timeout": "1m"}, "pass seconds as a number, or a timedelta"),
        ({"job_id": "order-7"}, "is not a UUID: pass one like"),
        ({"job_id": "'; drop table holdfast_job; --"}, "is not a UUID"),
        ({"job_id": 7}, "is not a UUID"),
        ({"queue": 7}, "is not a string"),
        ({"queue": "q" * 129}, "use at most 128"),
        ({"headers": {"h" * 129: "x"}}, "use at most 128"),
        ({"headers": {"trace\nparent": "x"}}, "start with an ASCII letter or an underscore"),
        ({"headers": {7: "x"}}, "is not a string"),
        ({"headers": "traceparent: x"}, "headers"),
    ],
)
async def test_an_option_that_cannot_work_is_refused_with_the_remedy(app, task, options, remedy):
    with pytest.raises(ConfigError, match=remedy):
        await task.options(**options).enqueue(n=1)

    assert await total(app) == 0


@pytest.mark.parametrize(
    ("headers", "remedy"),
    [
        ({"n": 7}, r"pass str\(…\) of it"),
        ({"n": "a\0b"}, "remove it, or encode"),
        ({"n": "\ud800"}, "decode it with errors='replace'"),
        ({f"h{n}": "x" for n in range(65)}, "more than the limit of 64: use arguments"),
        ({"n": "x" * 20_000}, "store the data elsewhere"),
    ],
)
async def test_headers_that_cannot_be_carried_are_refused_with_the_remedy(app, task, headers, remedy):
    with pytest.raises(PayloadError, match=remedy):
        await task.options(headers=headers).enqueue(n=1)

    assert await total(app) == 0


async def test_an_unknown_option_is_refused(app, task):
    refusal = pytest.raises(ConfigError, match=r"^task 'send': there is no setting dealy: did you mean delay")
    with refusal:
        task.options(dealy=5)
    with refusal:
        task.sync.options(dealy=5)


async def test_an_unknown_setting_of_a_task_is_refused(app):
    with pytest.raises(ConfigError, match=r"^@app\.task: there is no setting queu: did you mean queue"):
        app.task(queu="mail")


async def test_one_job_id_cannot_name_many_jobs(app, task):
    with pytest.raises(ConfigError, match="leave it out for enqueue_many"):
        await task.options(job_id="0190a8c0-0000-7000-8000-000000000001").enqueue_many([{"n": 1}])

    assert await total(app) == 0


@pytest.mark.parametrize("name", HOSTILE_NAMES)
async def test_a_name_outside_the_small_alphabet_is_refused_everywhere(app, task, name):
    refusal = pytest.raises(ConfigError, match=r"(is invalid|not a string)")
    with refusal:
        await task.options(queue=name).enqueue(n=1)
    with refusal:
        await task.options(headers={name: "x"}).enqueue(n=1)
    with refusal:
        await app.queues.pause(name)
    with refusal:
        await app.queues.resume(name)
    with refusal:
        await app.claim(name)
    with refusal:
        await app.claim("mail", worker_id=name)
    with refusal:
        app.worker(queues=["mail", name])
    with refusal:

        @app.task(queue=name)
        async def other() -> None: ...

    assert await total(app) == 0
    assert [queue.name for queue in await app.queues.list()] == []
    assert app.tasks.names == ("send",)


@pytest.mark.parametrize("name", [name for name in HOSTILE_NAMES if name])
async def test_a_task_name_outside_the_small_alphabet_is_refused(app, name):
    with pytest.raises(ConfigError, match="start with an ASCII letter or an underscore"):

        @app.task(name=name)
        async def other() -> None: ...

    assert app.tasks.names == ()


async def test_over_long_names_of_tasks_queues_and_workers_are_refused(app, task):
    refusal = pytest.raises(ConfigError, match="129 characters: use at most 128")
    long = "n" * 129
    with refusal:

        @app.task(name=long)
        async def other() -> None: ...

    with refusal:
        await app.queues.pause(long)
    with refusal:
        app.worker(worker_id=long)
    with refusal:
        await app.claim(long)

    await task.options(queue="n" * 128).enqueue(n=1)
    assert await total(app) == 1


@pytest.mark.parametrize("job_id", ["nobody", "'; drop table holdfast_job; --", "", "a\0b"])
async def test_a_job_that_is_not_there_is_told_as_such(app, task, job_id):
    await task.enqueue(n=1)

    for call in (app.jobs.show, app.jobs.cancel, app.jobs.retry, app.jobs.reset):
        with pytest.raises(JobNotFound, match="pass an id that an enqueue returned or a list shows"):
            await call(job_id)
    with pytest.raises(JobNotFound):
        await app.job(job_id).wait(1)

    assert await total(app) == 1


async def test_a_state_that_is_none_is_refused_with_the_states_there_are(app):
    with pytest.raises(
        ConfigError, match="pass one of scheduled, blocked, ready, running, completed, failed, cancelled"
    ):
        await app.jobs.list("done")


@pytest.mark.parametrize("state", ["ready", "scheduled", "failed"])
@pytest.mark.parametrize(
    "cursor", [5, "nonsense", "\ud800", "9" * 40, f"{'9' * 40}/{'9' * 40}", "'; drop table holdfast_job; --"]
)
async def test_a_cursor_that_no_page_has_given_is_refused_with_the_remedy(app, task, state, cursor):
    await task.enqueue(n=1)

    with pytest.raises(ConfigError, match=r"pass page\.cursor, or leave it out"):
        await app.jobs.list(state, cursor=cursor)


@pytest.mark.parametrize("limit", [0, -1, True, 2.5, "10", 10**9 + 1, 2**63, pytest.param(10**5000, id="enormous")])
async def test_a_limit_that_bounds_nothing_is_refused(app, task, limit):
    for call in (
        lambda: app.jobs.list("ready", limit=limit),
        lambda: app.leases(limit),
        lambda: app.claim("mail", limit),
        lambda: app.rescue(limit),
    ):
        with pytest.raises(ConfigError, match=r"a whole number from 1 to 1000000000$"):
            await call()


@pytest.mark.parametrize("reason", [5, 0, None, b"late", ["late"]])
async def test_a_reason_that_is_no_text_is_refused_and_nothing_is_cancelled(app, task, reason):
    job = await task.enqueue(n=1)

    with pytest.raises(ConfigError, match=r"^the reason to cancel a job is of type \w+: pass a text that says why"):
        await app.jobs.cancel(job.id, reason)
    with pytest.raises(ConfigError, match="pass a text that says why"):
        await job.cancel(reason)

    assert await total(app) == 1


@pytest.mark.parametrize("name", [*HOSTILE_NAMES, 5])
@pytest.mark.parametrize("kind", ["queue", "task"])
async def test_a_list_is_not_narrowed_by_what_can_be_no_name_whatever_the_cursor(app, task, kind, name):
    await task.enqueue_many([{"n": 1}, {"n": 2}])
    page = await app.jobs.list("ready", limit=1)

    for cursor in (None, page.cursor):
        with pytest.raises(ConfigError, match=f"^{kind} name"):
            await app.jobs.list("ready", cursor=cursor, **{kind: name})


async def test_the_reason_of_a_cancel_may_hold_anything(app, task):
    job = await task.enqueue(n=1)

    await job.cancel("a\0b\ud800" + "x" * 10_000)

    reason = (await job.details()).job.reason
    assert reason is not None
    assert reason.startswith(r"a\x00b\ud800xxx")
    assert len(reason.encode()) <= 2048


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ("max_retries", r"max_attempts \(it counts the first attempt too\)"),
        ("autoretry_for", "retry"),
        ("retry_backoff", "retry"),
        ("time_limit", "timeout"),
    ],
)
def test_a_setting_of_another_queue_is_refused_with_the_one_to_use(app: App, given: str, meant: str):
    with pytest.raises(ConfigError, match=rf"^@app\.task: there is no setting {given}: did you mean {meant}"):
        app.task(**{given: 3})  # type: ignore[call-overload]


@pytest.mark.parametrize(("given", "meant"), [("countdown", "delay"), ("eta", "run_at"), ("task_id", "job_id")])
def test_an_option_of_another_queue_is_refused_with_the_one_to_use(task, given: str, meant: str):
    with pytest.raises(ConfigError, match=f"^task 'send': there is no setting {given}: did you mean {meant}"):
        task.options(**{given: 3})


@pytest.mark.parametrize("name", ["delay", "apply_async", "send", "kiq", "defer"])
def test_a_call_of_another_queue_is_answered_with_the_one_to_use(task, name: str):
    remedy = r"call await send\.enqueue\(…\), in blocking code send\.sync\.enqueue\(…\)"
    for handle in (task, task.sync):
        with pytest.raises(AttributeError, match=remedy):
            getattr(handle, name)
        assert not hasattr(handle, name)


def test_another_unknown_attribute_of_a_task_is_refused_without_a_remedy(task):
    with pytest.raises(AttributeError, match=r"^task 'send' has no attribute 'colour'$"):
        _ = task.colour


def test_a_method_is_refused_as_a_task_with_the_remedy(app: App):
    remedy = r"Mailer\.mail is a method, and a worker has no object .*: make it a function .*, or .*mailer\."
    with pytest.raises(ConfigError, match=remedy):

        class Mailer:
            @app.task
            def mail(self, n: int) -> None: ...


async def test_the_method_of_an_object_is_a_task(app: App):
    class Mailer:
        def __init__(self) -> None:
            self.sent: list[int] = []

        def mail(self, n: int) -> None:
            self.sent.append(n)

    mailer = Mailer()
    mail = app.task(mailer.mail)
    await mail.enqueue(n=7)
    await app.drain("default")
    assert mailer.sent == [7]
