"""Leases for workers in other languages: claim, extend, finish and release, each item with its verdict.

The store finds a lease by its number and fence. So the id that comes with them is compared first: with what was
claimed from this server, or else in the store. For a caller that is limited to queues, the job is always looked up,
because a fence can be guessed. A lease of another job, or on a queue that the caller may not use, counts as lost.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any, Final

from holdfast.app.claim import callers_id
from holdfast.errors import JobNotFound
from holdfast.model.job import Lease, LeasedJob
from holdfast.server.api.disconnects import spread, unless_disconnected
from holdfast.server.api.fields import MAX_FENCE, NoFields
from holdfast.server.api.job_schemas import JobLease
from holdfast.server.api.lease_schemas import (
    ClaimBody,
    ClaimedJobView,
    ClaimedLease,
    ClaimedLeases,
    ExtendBody,
    ExtendedItem,
    ExtendVerdict,
    ExtendVerdicts,
    FinishBody,
    FinishedItem,
    LeaseList,
    LeaseQuery,
    LeaseRef,
    LeaseVerdict,
    LeaseVerdicts,
    ReleaseBody,
)
from holdfast.server.api.operation import Answer, ApiCall, Need, Operation, check_queues, check_worker
from holdfast.server.api.remote_outcomes import check_item, outcome_of, outcome_of_retry
from holdfast.server.api.shown import raw_call_of, shown
from holdfast.store.values import ClaimRequest, Finish, JobDetails, Verdict, WorkerHeartbeat


async def claim_jobs(call: ApiCall[NoFields, ClaimBody]) -> Answer:
    """Lease ready jobs to a worker.

    Finish, extend or release each before its lease expires; otherwise it is run by another worker. An empty list is
    the answer if there is nothing to do. Count the length of a lease from the moment when you sent the request.
    """
    body = call.body
    check_queues(call, body.queues)
    if body.worker_id is not None:
        await check_worker(call, body.worker_id)
    request = ClaimRequest(
        worker_id=callers_id(body.worker_id),
        tasks=tuple(dict.fromkeys(body.tasks)),
        limit=body.limit,
        lease=timedelta(seconds=body.lease_seconds),
        queues=tuple(dict.fromkeys(body.queues)),
        isolates=False,
    )
    worker = None if body.worker_id is None else _worker(call, request)
    claiming = call.state.claims.claim(request, wait=spread(body.wait_seconds), worker=worker)
    jobs = await unless_disconnected(call.request, claiming)
    call.state.attempts.started(jobs, request.worker_id, body.lease_seconds)
    return Answer(ClaimedLeases([_claimed(job, body.lease_seconds) for job in jobs]))


def _worker(call: ApiCall[Any, Any], request: ClaimRequest) -> WorkerHeartbeat:
    peer = call.request.client
    return WorkerHeartbeat(
        worker_id=request.worker_id,
        host="unknown" if peer is None else peer.host,
        pid=0,
        queues=request.queues,
        concurrency=request.limit,
        lease=request.lease,
        running=0,
        tasks=request.tasks,
    )


def _claimed(job: LeasedJob, lease_seconds: float) -> ClaimedLease:
    args, kwargs = raw_call_of(job.payload)
    view = shown(ClaimedJobView, job, args=args, kwargs=kwargs, headers=job.headers or {}, timeout_seconds=job.timeout)
    return ClaimedLease(LeaseRef(job_id=job.id, seq=job.seq, fence=str(job.fence)), lease_seconds, view)


async def extend_leases(call: ApiCall[NoFields, ExtendBody]) -> Answer:
    """Extend leases, and record the progress of their jobs.

    The verdict also says whether the worker should stop: `lost`, or `cancel`.
    """
    if call.body.worker_id is not None:
        await call.state.extending.known_heartbeat_if_due(call.body.worker_id, call.caller)
    return Answer(ExtendVerdicts(await extended(call, call.body.leases, call.body.lease_seconds)))


async def extended(call: ApiCall[Any, Any], items: Sequence[ExtendedItem], lease_seconds: float) -> list[ExtendVerdict]:
    """Extend leases, and record the progress of their jobs; return a verdict for each."""
    duration = timedelta(seconds=lease_seconds)
    own = await _own(call, [item.lease for item in items])
    leases = [_lease(item.lease) for item, is_own in zip(items, own, strict=True) if is_own]
    verdicts: dict[Lease, str] = dict.fromkeys(leases, "extended")
    if leases:
        answer = await call.state.extending.extend(leases, duration)
        verdicts |= dict.fromkeys(answer.skipped, "locked")
        verdicts |= dict.fromkeys(answer.cancel_asked, "cancel")
        verdicts |= dict.fromkeys(answer.lost, "lost")
        if {*verdicts.values()} - {"lost"}:
            call.state.claims.serve(duration)
    for lease in leases:
        if verdicts[lease] == "lost":
            call.state.attempts.lost(lease)
        elif verdicts[lease] != "locked":
            call.state.attempts.extended(lease, lease_seconds)
    for item in items:
        if verdicts.get(_lease(item.lease), "lost") != "lost":
            await _report(call, item)
    found = [(item.lease.job_id, verdicts.get(_lease(item.lease), "lost")) for item in items]
    return [
        shown(
            ExtendVerdict,
            None,
            job_id=job_id,
            verdict=word,
            lease_seconds=lease_seconds if word in {"extended", "cancel"} else None,
        )
        for job_id, word in found
    ]


async def _report(call: ApiCall[Any, Any], item: ExtendedItem) -> None:
    if item.progress is not None:
        store = call.app.backend.jobs
        await store.progress(_lease(item.lease), item.progress.percent, item.progress.note)


async def finish_leases(call: ApiCall[NoFields, FinishBody]) -> Answer:
    """End attempts. A repeat with the same outcome is answered as the first time."""
    items = call.body.leases
    for index, item in enumerate(items):
        check_item(item, f"leases[{index}]")
    return _verdicts([item.lease for item in items], await finished(call, items))


async def finished(call: ApiCall[Any, Any], items: Sequence[FinishedItem]) -> list[Verdict]:
    """End attempts, checked already; return a verdict for each."""
    own = await _own(call, [item.lease for item in items])
    finishes: dict[int, Finish] = {}
    for index, (item, is_own) in enumerate(zip(items, own, strict=True)):
        outcome = await _outcome(call, item) if is_own else None
        if outcome is not None:
            finishes[index] = outcome
    written = await call.app.backend.jobs.finish(list(finishes.values())) if finishes else []
    call.state.attempts.finished([*finishes.values()], written)
    done = dict(zip(finishes, written, strict=True))
    return [done.get(index, Verdict.LOST) for index in range(len(items))]


async def _outcome(call: ApiCall[Any, Any], item: FinishedItem) -> Finish | None:
    """Return the end of an attempt; None if the job does not exist any more."""
    if item.outcome != "retry":
        return Finish(_lease(item.lease), outcome_of(item))
    details = await _details(call, item.lease)
    return None if details is None else Finish(_lease(item.lease), outcome_of_retry(call.app, item, details))


async def release_leases(call: ApiCall[NoFields, ReleaseBody]) -> Answer:
    """Release leases: the jobs are ready again."""
    body = call.body
    own = await _own(call, body.leases)
    leases = [_lease(ref) for ref, is_own in zip(body.leases, own, strict=True) if is_own]
    answers = await call.app.backend.jobs.release(leases, started=body.started) if leases else []
    for lease, verdict in zip(leases, answers, strict=True):
        call.state.attempts.released(lease, verdict)
    written = iter(answers)
    return _verdicts(body.leases, [next(written) if is_own else Verdict.LOST for is_own in own])


async def list_leases(call: ApiCall[LeaseQuery, NoFields]) -> Answer:
    """List active leases, the next to expire first."""
    found = await call.app.leases(call.query.limit, expired_only=call.query.expired_only)
    return Answer(LeaseList([shown(JobLease, lease) for lease in found]))


def _lease(ref: LeaseRef) -> Lease:
    return Lease(job_id=ref.job_id.lower(), seq=ref.seq, fence=int(ref.fence))


async def _own(call: ApiCall[Any, Any], refs: Sequence[LeaseRef]) -> list[bool]:
    """Return which of these leases may exist, are of the job that they name, and on a queue that the caller may use."""
    if call.caller.queues is not None:
        return [_was_issued(ref) and await _details(call, ref) is not None for ref in refs]
    claimed_here = [call.state.attempts.knows(_lease(ref)) for ref in refs]
    ids = {ref.job_id.lower() for ref, is_known in zip(refs, claimed_here, strict=True) if not is_known}
    found = await call.app.backend.insight.states(list(ids)) if ids else []
    seqs = {seen.id: seen.seq for seen in found}
    return [
        _was_issued(ref) and (is_known or seqs.get(ref.job_id.lower()) == ref.seq)
        for ref, is_known in zip(refs, claimed_here, strict=True)
    ]


def _was_issued(ref: LeaseRef) -> bool:
    return int(ref.fence) <= MAX_FENCE


async def _details(call: ApiCall[Any, Any], ref: LeaseRef) -> JobDetails | None:
    """Return the job of a lease; None if it is another one, or of a queue that the caller may not use."""
    try:
        details = await call.app.jobs.show(ref.job_id)
    except JobNotFound:
        return None
    is_own = details.job.seq == ref.seq and call.caller.may_work_on(details.job.queue)
    return details if is_own else None


def _verdicts(refs: Sequence[LeaseRef], verdicts: Sequence[Verdict]) -> Answer:
    found = [
        LeaseVerdict(ref.job_id, "lost" if verdict is Verdict.LOST else "done")  # no finish of these is brief
        for ref, verdict in zip(refs, verdicts, strict=True)
    ]
    return Answer(LeaseVerdicts(found))


_FIRST: Final = "$response.body#/leases/0/lease"
OPERATIONS: Final = (
    Operation("GET", "/v1/leases", list_leases, Need.READ, {200: LeaseList}, query=LeaseQuery),
    Operation(
        "POST",
        "/v1/leases/claim",
        claim_jobs,
        Need.WORK,
        {200: ClaimedLeases},
        body=ClaimBody,
        wait_field="wait_seconds",
        links={
            "extend_leases": {"requestBody": {"leases": [{"lease": _FIRST}]}},
            "finish_leases": {"requestBody": {"leases": [{"lease": _FIRST, "outcome": "complete"}]}},
            "release_leases": {"requestBody": {"leases": [_FIRST]}},
        },
    ),
    Operation("POST", "/v1/leases/extend", extend_leases, Need.WORK, {200: ExtendVerdicts}, body=ExtendBody),
    Operation("POST", "/v1/leases/finish", finish_leases, Need.WORK, {200: LeaseVerdicts}, body=FinishBody),
    Operation("POST", "/v1/leases/release", release_leases, Need.WORK, {200: LeaseVerdicts}, body=ReleaseBody),
)
