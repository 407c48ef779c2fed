"""From a call to a `NewJob`: everything is checked here, before the store is asked for anything."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, cast
from uuid import UUID

import msgspec

from holdfast.errors import ArgumentsError, ConfigError, OutcomeUnknown, PayloadError
from holdfast.jobs.task import Task, check_max_attempts, check_priority, check_timeout
from holdfast.model.duration import to_span
from holdfast.model.ids import check_id, new_id, new_ids
from holdfast.model.instants import to_micros
from holdfast.model.job import NewJob
from holdfast.model.names import MAX_NAME, check_name
from holdfast.runtime.payload import encode_headers


class EnqueueOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How a job differs from its task's defaults; checked when made."""

    queue: str | None = None
    delay: timedelta | None = None
    run_at: datetime | None = None
    priority: int | None = None
    max_attempts: int | None = None
    timeout: float | None = None
    headers: dict[str, str] | None = None
    order_key: str | None = None
    job_id: str | None = None
    using: Any = None


def check_options(  # noqa: PLR0913 - the options of a job, by name
    *,
    queue: str | None = None,
    delay: float | timedelta | None = None,
    run_at: datetime | None = None,
    priority: int | None = None,
    max_attempts: int | None = None,
    timeout: float | timedelta | None = None,
    headers: Mapping[str, str] | None = None,
    order_key: str | None = None,
    job_id: str | UUID | None = None,
    using: object = None,
) -> EnqueueOptions:
    """Check the options of a job."""
    if delay is not None and run_at is not None:
        message = "delay and run_at are both given: delay counts from now, run_at is an instant; choose one"
        raise ConfigError(message)
    if run_at is not None:
        _check_instant(run_at)
    return EnqueueOptions(
        queue=None if queue is None else check_name("queue", queue),
        delay=None if delay is None else to_span(delay, "delay"),
        run_at=run_at,
        priority=None if priority is None else check_priority(priority),
        max_attempts=None if max_attempts is None else check_max_attempts(max_attempts),
        timeout=check_timeout(timeout),
        headers=_checked_headers(headers),
        order_key=None if order_key is None else check_order_key(order_key),
        job_id=None if job_id is None else check_id(str(job_id)),  # a UUID object is as good as its text
        using=using,
    )


def _check_instant(run_at: object) -> None:
    if not isinstance(run_at, datetime):
        message = f"run_at={run_at!r} is not a datetime: pass an aware datetime, or delay=<seconds>"
        raise ConfigError(message)
    to_micros(run_at)  # refuses a naive one, and one that no list could show


def _checked_headers(headers: object) -> dict[str, str] | None:
    if headers is not None and not isinstance(headers, Mapping):
        message = f"headers={headers!r} is not a mapping: pass names and texts, as in headers={{'traceparent': …}}"
        raise ConfigError(message)
    return encode_headers(cast("Mapping[str, str] | None", headers))


def check_order_key(order_key: object) -> str:
    """Return an order key, or refuse it. It is data of the caller's own, so any text will do that a store can keep."""
    if not isinstance(order_key, str):
        message = f"order_key={order_key!r} is not a text: pass one, as in order_key='customer-3'"
        raise ConfigError(message)
    if not order_key:
        message = "order_key='' is empty: leave it out for a job that waits for no other"
        raise ConfigError(message)
    if len(order_key) > MAX_NAME:
        message = f"order_key={order_key[:40]!r}… has {len(order_key)} characters: at most {MAX_NAME} are allowed"
        raise ConfigError(message)
    if "\0" in order_key or any("\ud800" <= sign <= "\udfff" for sign in order_key):
        message = f"order_key={order_key!r} holds a NUL or half of a surrogate pair, which no store keeps as text"
        raise ConfigError(message)
    return order_key


def new_job(task: Task, args: Sequence[Any], kwargs: Mapping[str, Any], options: EnqueueOptions) -> NewJob:
    """Return the job of one call."""
    return _job(task, options, options.job_id or new_id(), task.signature.encode(args, kwargs))


def new_jobs(
    task: Task,
    calls: Iterable[Mapping[str, Any] | Sequence[Any]],
    options: EnqueueOptions,
    job_ids: Iterable[str | UUID] | None = None,
) -> list[NewJob]:
    """Return the jobs of many calls, each given as a mapping of keyword arguments or a sequence of positional ones."""
    if options.job_id is not None:
        message = "job_id names one job: leave it out for enqueue_many, which takes job_ids=[…], one for each call"
        raise ConfigError(message)
    own = None if job_ids is None else _checked_ids(job_ids)
    encode = task.signature.encode
    payloads: list[str] = []
    for index, call in enumerate(calls):
        try:
            if isinstance(call, (dict, Mapping)):
                payloads.append(encode((), call))
            elif isinstance(call, (list, tuple)):
                payloads.append(encode(call, {}))
            else:
                message = "each item is a mapping of keyword arguments, or a list or tuple of positional ones"
                raise ArgumentsError(message)
        except PayloadError as error:
            message = f"item {index}: {error}. Nothing was enqueued"
            raise type(error)(message) from error
    if own is not None and len(own) != len(payloads):
        had = f"{len(own)} id{'' if len(own) == 1 else 's'} for {len(payloads)} call{'' if len(payloads) == 1 else 's'}"
        raise ConfigError(f"job_ids has {had}: pass one for each, in their order. Nothing was enqueued")
    first = _job(task, options, "", "")
    common = msgspec.structs.astuple(first)[4:]
    ids = new_ids(len(payloads)) if own is None else own
    return [NewJob(job_id, first.queue, first.task, text, *common) for job_id, text in zip(ids, payloads, strict=True)]


def _checked_ids(given: object) -> list[str]:
    """Return the ids of many jobs in canonical form, or refuse them: a repeated one would leave its call out."""
    if isinstance(given, str) or not isinstance(given, Iterable):
        kind = "is one text" if isinstance(given, str) else "is no list"
        raise ConfigError(f"job_ids={given!r} {kind}: pass a list of ids, one for each call")
    places: dict[str, int] = {}
    for index, job_id in enumerate(cast("Iterable[object]", given)):
        try:
            text = check_id(str(job_id))  # a UUID object is as good as its text
        except ConfigError as error:
            raise ConfigError(f"job_ids, item {index}: {error}") from None
        if text in places:
            message = f"job_ids: items {places[text]} and {index} are the same, {text}: each call is a job of its own"
            raise ConfigError(message)
        places[text] = index
    return list(places)


def unknown_enqueue(error: OutcomeUnknown, jobs: Sequence[NewJob]) -> OutcomeUnknown:
    """Return an error that tells, beside what went wrong, the ids with which this enqueue can be repeated.

    It is a new one: the store's may be told to several whose jobs it was given together.
    """
    if len(jobs) == 1:
        words = f"job {jobs[0].id} may have been enqueued: repeat with this id, and no second job is made"
    else:
        words = (
            f"{len(jobs)} jobs may have been enqueued, all or none: repeat with the same ids, as in "
            "enqueue_many(calls, job_ids=error.job_ids), and none is made twice"
        )
    return OutcomeUnknown(f"{error}; {words}", job_ids=tuple(job.id for job in jobs))


def _job(task: Task, options: EnqueueOptions, job_id: str, payload: str) -> NewJob:
    return NewJob(
        job_id,
        options.queue or task.queue,
        task.name,
        payload,
        options.headers,
        task.priority if options.priority is None else options.priority,
        task.max_attempts if options.max_attempts is None else options.max_attempts,
        options.timeout,
        options.delay,
        options.run_at,
        options.order_key,
    )
