"""Enqueue jobs: by the name of a task, whether the app of the server knows it or only workers do."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, cast
from uuid import UUID, uuid5

import msgspec

from holdfast.app.admin import copy_of
from holdfast.errors import HoldfastError, JobNotFound, OutcomeUnknown, TaskNotFound
from holdfast.jobs.enqueue import job_template, new_job, unknown_enqueue
from holdfast.jobs.task import Task, make_task
from holdfast.model.ids import new_id
from holdfast.model.job import NewJob
from holdfast.server.api.fields import IDEMPOTENCY_KEY, NoFields
from holdfast.server.api.job_schemas import BatchRequest, CopyRequest, EnqueuedBatch, EnqueuedJob, NewJobRequest
from holdfast.server.api.jobs import OF_A_JOB
from holdfast.server.api.operation import Answer, ApiCall, Need, Operation, invalid, trace_of
from holdfast.server.problems import Problem, problem_of
from holdfast.store.values import Enqueued

if TYPE_CHECKING:
    from holdfast.app.app import App
    from holdfast.jobs.enqueue import JobOptions

_KEYS: Final = UUID("6f1d8d0a-6c0e-5c0b-9f0e-2a7f3f6a1b52")  # the namespace of ids that are made of idempotency keys


def _any_call(*args: Any, **kwargs: Any) -> None:
    """Stand for the handler of a task that only workers know: its arguments cannot be checked here."""


@lru_cache(1024)
def _unknown_task(name: str) -> Task:
    return make_task(_any_call, name=name)


def _task(app: App, name: str) -> Task:
    try:
        return app.tasks.get(name)
    except TaskNotFound:
        return _unknown_task(name)


def _new_job(call: ApiCall[Any, Any], wanted: NewJobRequest, own_id: str | None) -> NewJob:
    """Return the job, checked; raises `HoldfastError`."""
    task = _task(call.app, wanted.task)
    args, kwargs = task.signature.decode(msgspec.json.encode((wanted.args, wanted.kwargs)).decode())
    options = {
        "queue": wanted.queue,
        "delay": wanted.delay_seconds,
        "run_at": wanted.run_at,
        "priority": wanted.priority,
        "max_attempts": wanted.max_attempts,
        "timeout": wanted.timeout_seconds,
        "headers": {**trace_of(call.request), **(wanted.headers or {})} or None,
        "order_key": wanted.order_key,
        "limit_key": wanted.limit_key,
        "unique_key": wanted.unique_key,
        "unique": wanted.unique,
        "unique_for": wanted.unique_for,
        "on_conflict": wanted.on_conflict,
        "after": wanted.after,
        "run_anyway": wanted.run_anyway,
        "job_id": wanted.id or own_id or new_id(),
    }
    return new_job(job_template(task, **cast("JobOptions", options)), args, kwargs)


async def _enqueue(app: App, jobs: Sequence[NewJob]) -> Sequence[Enqueued]:
    try:
        return await app.enqueue_new(jobs)
    except OutcomeUnknown as error:
        raise unknown_enqueue(error, jobs) from error


def _answer(job: NewJob, answer: Enqueued) -> EnqueuedJob:
    return EnqueuedJob(answer if isinstance(answer, str) else job.id, created=answer is True)


def _idempotency_key(call: ApiCall[Any, Any]) -> str | None:
    key = call.request.headers.get("idempotency-key")
    if key is not None and re.fullmatch(IDEMPOTENCY_KEY, key) is None:
        raise Problem(400, "invalid-idempotency-key", "an Idempotency-Key has 1 to 255 characters of ASCII")
    return key


async def enqueue_job(call: ApiCall[NoFields, NewJobRequest]) -> Answer:
    """Enqueue a job.

    It is safe to repeat with the same `id`, or the same `Idempotency-Key` header, which becomes the id: the answer is
    then 200 with the job that exists, or 422 if that job is another call. Idempotency keys are shared by all clients.
    """
    key = _idempotency_key(call)
    job = _new_job(call, call.body, None if key is None else str(uuid5(_KEYS, key)))
    return await _enqueued(call, job)


async def copy_job(call: ApiCall[NoFields, CopyRequest]) -> Answer:
    """Enqueue a copy of a job, to run at once.

    With an `id` it is safe to repeat, and answered as an enqueue.
    """
    details = await call.app.jobs.show(call.path("job_id"))
    return await _enqueued(call, copy_of(details, call.body.id or new_id()))


async def _enqueued(call: ApiCall[Any, Any], job: NewJob) -> Answer:
    (answer,) = await _enqueue(call.app, [job])
    if answer is False:
        await _check_same(call.app, job)
    known = _answer(job, answer)
    place = f"{call.request.scope.get('root_path', '')}/v1/jobs/{known.id}"
    return Answer(known, 201 if known.created else 200, {"location": place})


def _call_of(job: NewJob) -> tuple[str, str, str]:
    return job.task, job.queue, job.payload


async def _check_same(app: App, job: NewJob, where: str = "") -> None:
    """Raise `Problem` 422 if the job that has this id is another call."""
    try:
        known = await app.jobs.show(job.id)
    except JobNotFound:  # deleted since the answer: what it was cannot be compared
        return
    if (known.job.task, known.job.queue, known.payload) != _call_of(job):
        detail = f"job {job.id} exists and is another call: its task, queue or arguments differ; choose another id"
        raise Problem(422, "id-reused", where + detail, members={"job_id": job.id})


async def _check_known(app: App, jobs: Sequence[NewJob], chosen: Collection[str]) -> set[str]:
    """Return which of the ids that a client has chosen are known; raise `Problem` 422 if one of them is another call.

    It is asked before the jobs are written, so that a batch that is refused enqueues nothing.
    """
    if not chosen:
        return set()
    known = {seen.id for seen in await app.backend.insight.states(list(chosen))}
    for index, job in enumerate(jobs):
        if job.id in known:
            await _check_same(app, job, f"jobs[{index}]: ")
    return known


async def enqueue_batch(call: ApiCall[NoFields, BatchRequest]) -> Answer:
    """Enqueue jobs, all or none.

    With an `Idempotency-Key` header, jobs without `id` get one made of the key and their place in the list. An id of
    another call is answered with 422 `id-reused`, and nothing is enqueued, unless that call was made at the same time.
    """
    key = _idempotency_key(call)
    jobs: list[NewJob] = []
    chosen: dict[str, int] = {}
    for index, wanted in enumerate(call.body.jobs):
        try:
            jobs.append(_new_job(call, wanted, None if key is None else str(uuid5(_KEYS, f"{key}\n{index}"))))
        except HoldfastError as error:
            problem = problem_of(error)
            detail = f"jobs[{index}]: {problem.detail}. Nothing was enqueued"
            raise Problem(problem.status, problem.name, detail, members=problem.members) from error
        if wanted.id is not None or key is not None:
            first = chosen.setdefault(jobs[-1].id, index)
            if _call_of(jobs[first]) != _call_of(jobs[index]):
                raise invalid(f"jobs[{index}]: another call with its id is jobs[{first}]. Nothing was enqueued")
    known = await _check_known(call.app, jobs, chosen)
    answers = await _enqueue(call.app, jobs)
    for index, (job, answer) in enumerate(zip(jobs, answers, strict=True)):
        if answer is False and job.id not in known:  # another request has just enqueued it
            await _check_same(call.app, job, f"the other jobs are enqueued; jobs[{index}]: ")
    found = [_answer(job, answer) for job, answer in zip(jobs, answers, strict=True)]
    return Answer(EnqueuedBatch(found), 201 if any(job.created for job in found) else 200)


_CLAIMS: Final = {"claim_jobs": {"requestBody": {"queues": ["default"], "tasks": ["$request.body#/task"]}}}
OPERATIONS: Final = (
    Operation(
        "POST",
        "/v1/jobs",
        enqueue_job,
        Need.ENQUEUE,
        {201: EnqueuedJob, 200: EnqueuedJob},
        body=NewJobRequest,
        problems=(404, 409),
        links={**OF_A_JOB, **_CLAIMS},
    ),
    Operation(
        "POST",
        "/v1/jobs/batch",
        enqueue_batch,
        Need.ENQUEUE,
        {201: EnqueuedBatch, 200: EnqueuedBatch},
        body=BatchRequest,
        problems=(404, 409),
    ),
    Operation(
        "POST",
        "/v1/jobs/{job_id}/copy",
        copy_job,
        Need.OPERATE,
        {201: EnqueuedJob, 200: EnqueuedJob},
        body=CopyRequest,
    ),
)
