"""The habits of other queues are answered with what to write here."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from holdfast import App, ArgumentsError, ConfigError, Context, JobHandle

JOB_ID = "01a1e32d-0000-7000-8000-000000000000"


@pytest.fixture
def app() -> App:
    return App("sqlite://")


@pytest.mark.parametrize("name", ["broker", "backend", "broker_url", "result_backend"])
def test_an_app_takes_one_url(name: str):
    settings: dict[str, Any] = {name: "redis://localhost"}
    with pytest.raises(ConfigError, match=rf"^App: there is no setting {name}: did you mean url \(one store holds"):
        App("shop", **settings)


def test_a_mistyped_setting_of_an_app_is_refused():
    settings: dict[str, Any] = {"retentoin": None}
    with pytest.raises(ConfigError, match="did you mean retention"):
        App("sqlite://", **settings)


@pytest.mark.parametrize("name", ["bind", "pass_context", "acks_late", "serializer"])
def test_a_setting_that_is_not_needed_is_refused_with_what_to_do(app: App, name: str):
    settings: dict[str, Any] = {name: True}
    with pytest.raises(ConfigError, match=rf"^@app\.task: there is no setting {name}: leave it out"):
        app.task(**settings)


def test_a_bound_task_is_refused_with_the_context(app: App):
    with pytest.raises(ConfigError, match=r"annotate it as Context, as in def charge\(ctx: Context, …\)"):

        @app.task
        def charge(self: Any, order_id: int) -> None: ...


@pytest.mark.parametrize("name", ["send_task", "signature", "conf", "control", "add_periodic_task", "worker_main"])
def test_a_call_of_an_app_is_answered_with_the_one_to_use(app: App, name: str):
    for handle in (app, app.sync):
        with pytest.raises(AttributeError, match=rf"^'App' object has no attribute '{name}': "):
            getattr(handle, name)
    assert not hasattr(app, name)


@pytest.mark.parametrize(
    ("name", "remedy"),
    [("get", r"await job\.result\("), ("status", r"await job\.state\("), ("revoke", r"job\.cancel\(")],
)
def test_a_call_of_a_job_is_answered_with_the_one_to_use(app: App, name: str, remedy: str):
    job: JobHandle[Any] = app.job(JOB_ID)
    for handle in (job, job.sync):
        with pytest.raises(AttributeError, match=remedy):
            getattr(handle, name)


def test_another_unknown_attribute_is_refused_as_usual(app: App):
    handles: list[Any] = [app, app.job(JOB_ID)]
    for handle in handles:
        with pytest.raises(AttributeError, match=r"object has no attribute 'colour'$"):
            _ = handle.colour


def test_a_job_handle_can_be_copied(app: App):
    assert copy.copy(app.job(JOB_ID)).id == JOB_ID


@pytest.mark.parametrize(("given", "settings"), [([print], {}), ([], {"queue": "orders"}), ([], {})])
def test_a_task_of_the_class_is_refused(given: list[Any], settings: dict[str, Any]):
    task: Any = App.task
    with pytest.raises(ConfigError, match=r"^@App\.task is taken from the class: .* use @app\.task$"):
        task(*given, **settings)


def test_a_consumer_of_the_class_is_refused():
    consumer: Any = App.consumer
    with pytest.raises(ConfigError, match=r"^@App\.consumer is taken from the class"):
        consumer("billing", category="orders")


def test_a_class_is_no_task(app: App):
    with pytest.raises(ConfigError, match=r"Mailer is a class: .* app\.task\(.*Mailer\(\)\.run\)"):

        @app.task
        class Mailer:
            pass


@pytest.mark.parametrize(("given", "option"), [("queue", "queue"), ("countdown", "delay"), ("eta", "run_at")])
def test_an_option_among_the_arguments_is_refused_with_its_place(app: App, given: str, option: str):
    @app.task
    def charge(order_id: int) -> None: ...

    arguments: dict[str, Any] = {given: 3}
    with pytest.raises(ArgumentsError, match=rf"an option goes elsewhere: charge\.options\({option}=…\)\.enqueue"):
        charge.sync.enqueue(order_id=7, **arguments)
    app.sync.close()


async def test_the_calls_of_a_bound_task_are_answered_with_those_of_the_context(app: App):
    answers: list[str] = []

    @app.task
    async def charge(ctx: Context) -> None:
        for name in ("retry", "request", "update_state"):
            try:
                getattr(ctx, name)
            except AttributeError as error:
                answers.append(str(error))

    await charge.enqueue()
    await app.drain("default")
    await app.close()
    assert [answer.partition(": ")[2][:20] for answer in answers] == [
        "to run the job again",
        "the job is ctx.job, ",
        "to report progress, ",
    ]


@pytest.mark.parametrize(("name", "remedy"), [("s", r"charge\.call\("), ("signature", "chain"), ("apply", "call it")])
def test_a_signature_of_a_task_is_answered_with_a_call(app: App, name: str, remedy: str):
    @app.task
    def charge() -> None: ...

    with pytest.raises(AttributeError, match=remedy):
        getattr(charge, name)


def test_the_retry_of_a_task_is_answered_with_the_exception(app: App):
    @app.task
    def charge() -> None: ...

    with pytest.raises(AttributeError, match=r"raise Retry\(60\) in its handler"):
        charge.retry()  # type: ignore[attr-defined]
