"""Look at jobs, wait for them, and change them."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, Final, cast, get_args

import msgspec

from holdfast.app.bulk import JobSelection
from holdfast.app.job_handle import JobHandle
from holdfast.app.job_search import search
from holdfast.model.explanation import Cause, Explanation
from holdfast.model.job import FINAL_STATES, JobState
from holdfast.reports.failures import failure_groups
from holdfast.server.access import Role
from holdfast.server.api.disconnects import spread, unless_disconnected
from holdfast.server.api.fields import NoFields
from holdfast.server.api.job_schemas import (
    CancelledJob,
    ChangedJob,
    ErrorList,
    ExplainedJob,
    GraphNode,
    GraphQuery,
    JobAttempt,
    JobLease,
    JobList,
    JobListQuery,
    JobResult,
    ListedJobView,
    ReasonRequest,
    ShownArguments,
    ShownErrorGroup,
    ShownGraph,
    ShownJob,
    ShowQuery,
    WaitedJob,
    WaitQuery,
)
from holdfast.server.api.operation import Answer, ApiCall, Need, Operation, by_id
from holdfast.server.api.shown import call_of, in_seconds, shown
from holdfast.server.auditing import record
from holdfast.server.redaction import redacted, redacted_data
from holdfast.server.state import ServerSettings
from holdfast.store.values import JobDetails

_JOB: Final = "/v1/jobs/{job_id}"
_GROUPED: Final = 500


# --- looking ----------------------------------------------------------------------------------------------------------


async def list_jobs(call: ApiCall[JobListQuery, NoFields]) -> Answer:
    """List the jobs in one state, a page at a time.

    Of many jobs, only some thousands are compared with a queue or a task at once: a page may have fewer jobs than the
    limit, or none, and still a `cursor`, which continues the list.
    """
    query = call.query
    selection = JobSelection(query.state, query.queue, query.task)
    page = await search(call.app, selection, cursor=query.cursor, limit=query.limit)
    return Answer(JobList([shown(ListedJobView, job) for job in page.jobs], page.cursor))


async def list_errors(call: ApiCall[NoFields, NoFields]) -> Answer:
    """Group the latest failed jobs by task and error, the largest group first; numbers in an error do not count."""
    page = await call.app.jobs.list(JobState.FAILED, limit=_GROUPED)
    groups = [shown(ShownErrorGroup, group) for group in failure_groups(page.jobs)]
    return Answer(ErrorList(groups, len(page.jobs), page.cursor is not None))


async def show_job(call: ApiCall[ShowQuery, NoFields]) -> Answer:
    """Return everything about a job; its arguments only on request.

    To see arguments, the scope `operate` is needed.
    """
    if call.query.arguments:
        call.check_role(Role.OPERATE)
    details = await call.app.jobs.show(call.path("job_id"))
    arguments = None
    if call.query.arguments:
        arguments = _arguments(call.state.settings, details)
        await record(call.request, call.caller, "job.reveal", details.job.id)
    return Answer(
        ShownJob(
            shown(ListedJobView, details.job),
            details.timeout,
            details.unique_key,
            None if details.lease is None else shown(JobLease, details.lease),
            [shown(JobAttempt, attempt) for attempt in details.all_attempts],
            arguments,
        )
    )


def _arguments(settings: ServerSettings, details: JobDetails) -> ShownArguments:
    task = details.job.task
    try:
        args, kwargs = call_of(details.payload)
    except msgspec.DecodeError:  # a damaged payload is shown as it is
        args, kwargs = [details.payload], {}
    return ShownArguments(
        redacted_data(settings, task, args),
        redacted_data(settings, task, kwargs),
        redacted_data(settings, task, dict(details.headers)),
        redacted(settings, task, details.result),
    )


async def explain_job(call: ApiCall[NoFields, NoFields]) -> Answer:
    """Return why a job is not running."""
    return Answer(_explained(await call.app.jobs.explain(call.path("job_id"))))


def _explained(explanation: Explanation) -> ExplainedJob:
    cause = cast("str", explanation.cause.__struct_config__.tag)
    return shown(ExplainedJob, explanation, id=explanation.job_id, cause=cause, details=_details(explanation.cause))


def _details(cause: Cause) -> dict[str, Any]:
    details: dict[str, Any] = {}
    for field in msgspec.structs.fields(cause):
        value = getattr(cause, field.name)
        if isinstance(value, Explanation):
            details[field.name] = _explained(value)
        elif timedelta in (field.type, *get_args(field.type)):
            details[f"{field.name}_seconds"] = in_seconds(value)
        else:
            details[field.name] = value
    return details


async def show_graph(call: ApiCall[GraphQuery, NoFields]) -> Answer:
    """Return the jobs that are connected with this one."""
    graph = await call.app.jobs.graph(call.path("job_id"), limit=call.query.limit)
    return Answer(ShownGraph([shown(GraphNode, job) for job in graph.jobs], graph.is_cut))


# --- waiting ----------------------------------------------------------------------------------------------------------


async def _wait(call: ApiCall[WaitQuery, NoFields]) -> tuple[JobHandle[Any], JobState]:
    """Wait for the end of the job; all that wait are looked up together, and hold no connection."""
    handle = call.app.job(call.path("job_id"))
    try:
        state = await unless_disconnected(call.request, handle.wait(spread(call.query.wait_seconds)))
    except TimeoutError:
        state = await handle.state()
    return handle, state


async def wait_for_job(call: ApiCall[WaitQuery, NoFields]) -> Answer:
    """Wait until a job has ended, and return its state as it is then."""
    handle, state = await _wait(call)
    return Answer(WaitedJob(handle.id, state, state in FINAL_STATES))


async def show_result(call: ApiCall[WaitQuery, NoFields]) -> Answer:
    """Return the result of a job.

    Answers 202 with the state if it has not ended, and 409 `job-failed` or `job-cancelled` if it ended otherwise.
    Besides `read`, the scope `enqueue` or `operate` is needed. A producer, whose token has `enqueue`, receives the
    result as it is; all others see it redacted.
    """
    if not call.sees_contents:
        call.check_role(Role.OPERATE)
    handle, state = await _wait(call)
    if state not in FINAL_STATES:
        return Answer(WaitedJob(handle.id, state, ended=False), 202)
    result = await handle.result(timeout=0)
    if not call.caller.is_producer:
        details = await call.app.jobs.show(handle.id)
        result = redacted(call.state.settings, details.job.task, details.result)
    return Answer(JobResult(handle.id, result))


# --- changing ---------------------------------------------------------------------------------------------------------


async def cancel_job(call: ApiCall[NoFields, ReasonRequest]) -> Answer:
    """Cancel a job that is not running, otherwise ask its worker to abort it."""
    job_id = call.path("job_id")
    verdict = await call.app.jobs.cancel(job_id, call.body.reason)
    return Answer(CancelledJob(job_id, verdict.value))


async def retry_job(call: ApiCall[NoFields, NoFields]) -> Answer:
    """Make a failed or cancelled job ready again, with all its attempts."""
    job_id = call.path("job_id")
    return Answer(ChangedJob(job_id, await call.app.jobs.retry(job_id)))


async def run_job(call: ApiCall[NoFields, NoFields]) -> Answer:
    """Make a scheduled job due now, also one that waits for its next attempt."""
    job_id = call.path("job_id")
    return Answer(ChangedJob(job_id, await call.app.jobs.run(job_id)))


async def reset_job(call: ApiCall[NoFields, NoFields]) -> Answer:
    """Revoke the lease of a running job: it is ready again, and its worker can no longer write."""
    job_id = call.path("job_id")
    return Answer(ChangedJob(job_id, await call.app.jobs.reset(job_id)))


async def delete_job(call: ApiCall[NoFields, NoFields]) -> Answer:
    """Delete a finished job with its records."""
    await call.app.jobs.delete(call.path("job_id"))
    return Answer(None)


_ENDS: Final = ("show_job", "explain_job", "retry_job", "delete_job")
OF_A_JOB: Final = by_id(
    "job_id", *_ENDS, "show_graph", "wait_for_job", "show_result", "cancel_job", "run_job", "copy_job", "reset_job"
)
"""Links from an answer with the id of a job."""
OPERATIONS: Final = (
    Operation("GET", "/v1/jobs", list_jobs, Need.READ, {200: JobList}, query=JobListQuery),
    Operation("GET", "/v1/errors", list_errors, Need.READ, {200: ErrorList}),
    Operation("GET", _JOB, show_job, Need.READ, {200: ShownJob}, query=ShowQuery),
    Operation("DELETE", _JOB, delete_job, Need.ADMIN, {204: None}),
    Operation("GET", f"{_JOB}/explain", explain_job, Need.READ, {200: ExplainedJob}),
    Operation("GET", f"{_JOB}/graph", show_graph, Need.READ, {200: ShownGraph}, query=GraphQuery),
    Operation(
        "GET", f"{_JOB}/wait", wait_for_job, Need.READ, {200: WaitedJob}, query=WaitQuery, wait_field="wait_seconds"
    ),
    Operation(
        "GET",
        f"{_JOB}/result",
        show_result,
        Need.READ,
        {200: JobResult, 202: WaitedJob},
        query=WaitQuery,
        problems=(409,),
        wait_field="wait_seconds",
    ),
    Operation(
        "POST",
        f"{_JOB}/cancel",
        cancel_job,
        Need.OPERATE,
        {200: CancelledJob},
        body=ReasonRequest,
        links=by_id("job_id", *_ENDS),
    ),
    Operation("POST", f"{_JOB}/retry", retry_job, Need.OPERATE, {200: ChangedJob}, problems=(409,)),
    Operation("POST", f"{_JOB}/run", run_job, Need.OPERATE, {200: ChangedJob}),
    Operation("POST", f"{_JOB}/reset", reset_job, Need.ADMIN, {200: ChangedJob}),
)
