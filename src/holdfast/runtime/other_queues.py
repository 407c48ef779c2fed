"""The calls of other queues, answered with the one to use here."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import wraps
from typing import TYPE_CHECKING, Any, ClassVar, Final, TypeVar, cast

from holdfast.errors import ConfigError

F = TypeVar("F", bound=Callable[..., Any])

# Settings that have no counterpart -> what to do instead. Those that have one are in `unknown_settings`.
NOT_SETTINGS: Final = {
    "acks_late": "leave it out: a job is always acknowledged after it has ended",
    "bind": "leave it out, and annotate a parameter as Context, as in def charge(ctx: Context, order_id: int)",
    "context": "leave it out, and annotate a parameter as Context, as in def charge(ctx: Context, order_id: int)",
    "ignore_result": "leave it out: a result is stored if the handler returns one",
    "include": "leave it out, and import the modules that define tasks",
    "pass_context": "leave it out, and annotate a parameter as Context, as in def charge(ctx: Context, order_id: int)",
    "reject_on_worker_lost": "leave it out: the job of a dead worker always runs again",
    "serializer": "leave it out: arguments and results are JSON",
}

APP_CALLS: Final = {
    **dict.fromkeys(
        ("defer", "enqueue_job", "send_task", "signature"),
        "to enqueue a job by the name of its task, call await app.enqueue('charge', …), in blocking code "
        "app.sync.enqueue('charge', …)",
    ),
    "AsyncResult": "the handle of a job by its id is app.job(job_id)",
    **dict.fromkeys(
        ("add_periodic_task", "on_after_configure", "on_after_finalize", "periodic"),
        "to run a task periodically, declare @app.schedule('*/5 * * * *') above it",
    ),
    "actor": "make a function a task with @app.task",
    "autodiscover_tasks": "import the modules that define tasks, and name the app: holdfast worker run shop.tasks:app",
    "conf": "settings are arguments of App(…), @app.task(…) and app.run_worker(…)",
    "control": "cancel a job with app.job(job_id).cancel(); list workers with app.workers()",
    "run": "run a worker with app.run_worker(), or as a command: holdfast worker run shop.tasks:app",
    "start": "run a worker with app.run_worker(), or as a command: holdfast worker run shop.tasks:app",
    "worker_main": "run a worker with app.run_worker(), or as a command: holdfast worker run shop.tasks:app",
}

_RESULT = "call await job.result(timeout=…), in blocking code job.sync.result(timeout=…)"
_STATE = "call await job.state(), in blocking code job.sync.state()"
JOB_CALLS: Final = {
    **dict.fromkeys(("get", "get_result", "join", "wait_result"), f"to wait for the result, {_RESULT}"),
    **dict.fromkeys(
        ("failed", "get_status", "is_finished", "ready", "status", "successful"), f"for its state, {_STATE}"
    ),
    "revoke": "to cancel the job, call await job.cancel(), in blocking code job.sync.cancel()",
    "task_id": "the id of the job is job.id",
}
CONTEXT_CALLS: Final = {
    "request": "the job is ctx.job, as in ctx.job.id and ctx.job.used_attempts",
    "retry": "to run the job again, raise Retry(60), imported from holdfast",
    "update_state": "to report progress, call await ctx.progress(50), in blocking code ctx.sync.progress(50)",
}


class AnswersOtherCalls:
    """Raises `AttributeError` for an unknown attribute; for a call of other queues, with the one to use here."""

    __slots__ = ()
    _other_calls: ClassVar[Mapping[str, str]] = {}

    if not TYPE_CHECKING:  # a type checker must report an unknown attribute

        def __getattr__(self, name: str) -> Any:
            """Raise `AttributeError`."""
            remedy = self._other_calls.get(name)
            answer = "" if remedy is None else f": {remedy}"
            kind = type(self).__name__
            raise AttributeError(f"{kind!r} object has no attribute {name!r}{answer}", name=name, obj=self)


def on_an_app(decorator: F) -> F:
    """Make a decorator of an app refuse, with `ConfigError`, to be taken from the class: `@App.task`."""

    @wraps(decorator)
    def call(*args: Any, **kwargs: Any) -> Any:
        if not args or not isinstance(args[0], AnswersOtherCalls):
            name = decorator.__name__
            raise ConfigError(f"@App.{name} is taken from the class: create an app, app = App(…), and use @app.{name}")
        return decorator(*args, **kwargs)

    return cast("F", call)
