"""Makes a `NewJob` of a call: options and arguments are checked here, before any store call."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Final, Generic, ParamSpec, TypedDict, TypeVar, Unpack, cast
from uuid import UUID

import msgspec

from holdfast.errors import ArgumentsError, ConfigError, OutcomeUnknown, PayloadError
from holdfast.jobs.after import Parent, after_conditions
from holdfast.jobs.task import Task, check_max_attempts, check_priority, check_timeout
from holdfast.jobs.unique import OnConflictName, UniqueFor, unique_of, unique_setting
from holdfast.model.conditions import Conditions, Unique
from holdfast.model.counted import counted
from holdfast.model.duration import to_span
from holdfast.model.ids import check_id, new_id, new_ids
from holdfast.model.instants import to_micros
from holdfast.model.job import NewJob
from holdfast.model.names import check_key, check_name
from holdfast.runtime.payload import encode_headers
from holdfast.runtime.unknown_settings import meant_setting, refuse_unknown

P = ParamSpec("P")
R_co = TypeVar("R_co", covariant=True)


class TaskCall(Generic[P, R_co]):
    """A call of a task with this signature, for `enqueue_many`, `chain` and `group`; made by `task.call(…)`."""

    __slots__ = ("args", "kwargs", "origin")

    def __init__(self, args: Sequence[Any], kwargs: Mapping[str, Any], origin: tuple[Any, Task, JobTemplate]) -> None:
        self.args = args
        self.kwargs = kwargs
        self.origin = origin
        """The app, the task, and the options of its jobs."""


class JobOptions(TypedDict, total=False):
    """The options of a job, which override the defaults of its task: the only list of them.

    `delay` counts from the store's now, `run_at` is an aware datetime; give at most one of them. `priority` is a head
    start of a minute per step. Jobs of one queue with the same `order_key` run one at a time, in enqueue order.
    Jobs of the task with the same `limit_key` obey its `key_limit` together.
    Of the jobs of the task with the same `unique_key`, one is enqueued, and other callers get it; `unique=True` makes
    the key of the arguments; `unique_for` is how long a job holds its key, `on_conflict` what others do meanwhile.
    `job_id` (a UUID) makes an enqueue safe to repeat. `using` is the caller's connection, whose open transaction the
    enqueue joins. `patience` is how long an enqueue is repeated, with the same ids, while the store cannot be reached.
    The job waits for the end of the jobs in `after`; if one of them fails or is cancelled, it is cancelled, or with
    `run_anyway` runs nevertheless.
    An option that is None counts as not given.
    """

    queue: str | None
    delay: float | timedelta | None
    run_at: datetime | None
    priority: int | None
    max_attempts: int | None
    timeout: float | timedelta | None
    headers: Mapping[str, str] | None
    order_key: str | None
    limit_key: str | None
    unique_key: str | None
    unique: bool | None
    unique_for: UniqueFor | None
    on_conflict: OnConflictName | None
    after: Parent | Iterable[Parent] | None
    run_anyway: bool | None
    job_id: str | UUID | None
    using: object
    patience: float | timedelta | None


JOB_OPTIONS: Final = tuple(JobOptions.__annotations__)


class JobTemplate(msgspec.Struct, frozen=True):
    """The checked values that the jobs of one task and one set of options have in common."""

    encode: Callable[[Sequence[Any], Mapping[str, Any]], str]
    queue: str
    task: str
    common: tuple[Any, ...]
    """The fields of `NewJob` after the payload."""
    job_id: str | None
    using: object
    patience: float | None
    """Seconds for which an enqueue is repeated; None: it is not."""
    unique: Callable[[str], Unique] | None = None
    """The unique key of a job by its payload."""
    has_options: bool = False


def job_template(task: Task, **options: Unpack[JobOptions]) -> JobTemplate:
    """Check the options; raises `ConfigError`, with the remedy, for one that is unknown or invalid."""
    refuse_unknown(f"task {task.name!r}", options, JOB_OPTIONS)
    given = {name: value for name, value in options.items() if value is not None}
    delay = options.get("delay")
    if delay is not None and "run_at" in given:
        message = "delay and run_at are both given: delay counts from now, run_at is an absolute time; choose one"
        raise ConfigError(message)
    if "order_key" in given and "limit_key" in given:
        message = (
            "order_key and limit_key are both given: a job waits in one key at a time, and jobs of an order key run "
            "one at a time already; leave out limit_key, or limit the task or its queue"
        )
        raise ConfigError(message)
    if "patience" in given and "using" in given:
        message = (
            "patience and using are both given: an enqueue in your transaction cannot be repeated by itself; leave out "
            "patience, and repeat the whole transaction"
        )
        raise ConfigError(message)
    patience = options.get("patience")
    unique = unique_setting(given, task.unique)
    job = NewJob(
        id="",
        queue=check_name("queue", given.get("queue", task.queue)),
        task=task.name,
        payload="",
        headers=_checked_headers(options.get("headers")),
        priority=check_priority(given.get("priority", task.priority)),
        max_attempts=check_max_attempts(given.get("max_attempts", task.max_attempts)),
        timeout=check_timeout(options.get("timeout")),
        delay=None if delay is None else to_span(delay, "delay"),
        run_at=_checked_instant(given.get("run_at")),
        order_key=check_key("order_key", given["order_key"]) if "order_key" in given else None,
        limit_key=check_key("limit_key", given["limit_key"]) if "limit_key" in given else None,
        conditions=after_conditions(given),
    )
    return JobTemplate(
        encode=task.signature.encode,
        queue=job.queue,
        task=job.task,
        common=msgspec.structs.astuple(job)[4:],
        job_id=check_id(str(given["job_id"])) if "job_id" in given else None,  # a UUID object is accepted too
        using=options.get("using"),
        patience=None if patience is None else to_span(patience, "patience").total_seconds(),
        unique=None if unique is None else unique_of(unique, task.signature, task.handler),
        has_options=bool(given),
    )


def _checked_instant(run_at: object) -> datetime | None:
    if run_at is None:
        return None
    if not isinstance(run_at, datetime):
        message = f"run_at={run_at!r} is not a datetime: pass an aware datetime, or delay=<seconds>"
        raise ConfigError(message)
    to_micros(run_at)  # raises if it is naive or out of range
    return run_at


def _checked_headers(headers: object) -> dict[str, str] | None:
    if headers is not None and not isinstance(headers, Mapping):
        message = f"headers={headers!r} is not a mapping: pass strings by name, as in headers={{'traceparent': …}}"
        raise ConfigError(message)
    return encode_headers(cast("Mapping[str, str] | None", headers))


def new_job(template: JobTemplate, args: Sequence[Any], kwargs: Mapping[str, Any]) -> NewJob:
    """Return the job of one call."""
    try:
        payload = template.encode(args, kwargs)
    except ArgumentsError as error:
        option = next((meant for meant in map(meant_option, kwargs) if meant), None)
        if option is None:
            raise
        raise ArgumentsError(
            f"{error}; an option goes elsewhere: {template.task}.options({option}=…).enqueue(…)"
        ) from None
    common = template.common if template.unique is None else _with_key(template, payload)
    return NewJob(template.job_id or new_id(), template.queue, template.task, payload, *common)


def _with_key(template: JobTemplate, payload: str) -> tuple[Any, ...]:
    """Return the fields of `NewJob` after the payload, with the unique key in the conditions, which come last."""
    *others, conditions = template.common
    unique = None if template.unique is None else template.unique(payload)
    if conditions is not None:
        return (*others, msgspec.structs.replace(conditions, unique=unique))
    return (*others, Conditions(unique))


def meant_option(name: str) -> str | None:
    """Return the option of a job that is called so, here or in another queue."""
    return meant_setting(name, JOB_OPTIONS)


def new_jobs(
    template: JobTemplate,
    calls: Iterable[TaskCall[Any, Any] | Mapping[str, Any] | Sequence[Any]],
    job_ids: Iterable[str | UUID] | None = None,
) -> list[NewJob]:
    """Return the jobs of many calls: `TaskCall`s, mappings of keyword arguments or sequences of positional ones."""
    if template.job_id is not None:
        message = "job_id identifies one job: leave it out for enqueue_many, which takes job_ids=[…], one for each call"
        raise ConfigError(message)
    given_ids = None if job_ids is None else _checked_ids(job_ids)
    encode = template.encode
    payloads: list[str] = []
    for index, call in enumerate(calls):  # without a function for each call: that is noticeable in large batches
        try:
            if isinstance(call, (dict, Mapping)):
                payloads.append(encode((), call))
            elif isinstance(call, (list, tuple)):
                payloads.append(encode(call, {}))
            elif isinstance(call, TaskCall):
                if call.origin[2] is not template:
                    _check_call(template, call.origin[2])
                payloads.append(encode(call.args, call.kwargs))
            else:
                message = (
                    "each item must be task.call(…), a mapping of keyword arguments, or a list or tuple of positional "
                    "ones"
                )
                raise ArgumentsError(message)
        except (ConfigError, PayloadError) as error:
            raise type(error)(f"item {index}: {error}. Nothing was enqueued") from error
    if given_ids is not None and len(given_ids) != len(payloads):
        counts = f"{counted(len(given_ids), 'id')} for {counted(len(payloads), 'call')}"
        raise ConfigError(f"job_ids has {counts}: pass one for each call, in the same order. Nothing was enqueued")
    ids = new_ids(len(payloads)) if given_ids is None else given_ids
    queue, task, common = template.queue, template.task, template.common
    calls_by_id = zip(ids, payloads, strict=True)
    if template.unique is not None:
        return [NewJob(job_id, queue, task, text, *_with_key(template, text)) for job_id, text in calls_by_id]
    return [NewJob(job_id, queue, task, payload, *common) for job_id, payload in calls_by_id]


def _check_call(template: JobTemplate, called: JobTemplate) -> None:
    """Raise `ConfigError` for a call whose task or options would be lost: all jobs are made from one template."""
    if called.encode != template.encode:
        raise ConfigError(
            f"a call of {called.task!r} among those of {template.task!r}: pass calls of one task, or enqueue several "
            "tasks at once with group(…).enqueue()"
        )
    if called.has_options:
        raise ConfigError(
            f"a call of {called.task!r} with its own options: give them to all, as in "
            f"{called.task}.options(…).enqueue_many(…), or keep them apart with group(…).enqueue()"
        )


def _checked_ids(given: object) -> list[str]:
    """Return the ids in canonical form; raise `ConfigError` for a duplicate, whose job would not be created."""
    if isinstance(given, str) or not isinstance(given, Iterable):
        kind = "is a string" if isinstance(given, str) else "is not a list"
        raise ConfigError(f"job_ids={given!r} {kind}: pass a list of ids, one for each call")
    places: dict[str, int] = {}
    for index, job_id in enumerate(cast("Iterable[object]", given)):
        try:
            text = check_id(str(job_id))  # a UUID object is accepted too
        except ConfigError as error:
            raise ConfigError(f"job_ids, item {index}: {error}") from None
        if text in places:
            message = f"job_ids: items {places[text]} and {index} are the same, {text}: each call needs a separate id"
            raise ConfigError(message)
        places[text] = index
    return list(places)


def unknown_enqueue(error: OutcomeUnknown, jobs: Sequence[NewJob]) -> OutcomeUnknown:
    """Return a new error with the ids under which this enqueue can be repeated safely.

    The store's own error may be shared by several callers whose jobs were sent in one batch.
    """
    if len(jobs) == 1:
        words = f"job {jobs[0].id} may have been enqueued: repeat with this id, and no second job is created"
    else:
        words = (
            f"{len(jobs)} jobs may have been enqueued, all or none: repeat with the same ids, as in "
            "enqueue_many(calls, job_ids=error.job_ids), and none is created twice"
        )
    return OutcomeUnknown(f"{error}; {words}", job_ids=tuple(job.id for job in jobs))
