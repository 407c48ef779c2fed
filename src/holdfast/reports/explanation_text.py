"""Why a job is not running, in words: one sentence with the remedy. Each cause has its function here."""

from __future__ import annotations

from datetime import datetime
from functools import singledispatch
from typing import NamedTuple

from holdfast.model.counted import counted
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
from holdfast.model.ids import short_id
from holdfast.model.job import JobState
from holdfast.reports.finding import some
from holdfast.reports.text import line
from holdfast.reports.times import relative, span


class Words(NamedTuple):
    """What keeps a job from running, as the rest of a sentence about it; and what to do."""

    matter: str
    remedy: str


def words(explanation: Explanation) -> Words:
    """Return the explanation in words; commands are in backticks."""
    matter, remedy = _of_job(explanation)
    return Words(f"Job {_name(explanation)} {matter}", remedy)


def _of_job(explanation: Explanation) -> Words:
    return _words(explanation.cause, explanation)


def _name(job: Explanation) -> str:
    return f"{_short(job)} ({line(job.task)})"


def _short(job: Explanation) -> str:
    return short_id(job.seq, job.job_id)


def _at(instant: datetime) -> str:
    return f"{instant:%Y-%m-%d %H:%M:%S} UTC ({relative(instant)})"


@singledispatch
def _words(cause: Cause, job: Explanation) -> Words:
    return Words(f"is not running ({cause.__struct_config__.tag})", f"see `holdfast job show {_short(job)}`")


@_words.register
def _ended(cause: Ended, job: Explanation) -> Words:
    when = "" if cause.finished_at is None else f" at {_at(cause.finished_at)}"
    why = line(cause.why) if cause.why else ""
    match job.state:
        case JobState.COMPLETED:
            return Words(f"has completed{when}", f"`holdfast job show {_short(job)}` shows it")
        case JobState.FAILED:
            show, retry = f"`holdfast job show {_short(job)}`", f"`holdfast job retry {_short(job)}`"
            return Words(
                f"has failed{when} with {why or 'an error'}",
                f"see the error with {show}, then run it again with {retry}",
            )
        case _:
            return Words(
                f"was cancelled{when}{why and f' ({why})'}", f"run it again with `holdfast job retry {_short(job)}`"
            )


@_words.register
def _running(cause: Running, job: Explanation) -> Words:
    matter = f"has been running on worker {line(cause.worker_id)} since {_at(cause.since_at)}"
    return Words(matter, f"wait; `holdfast job show {_short(job)}` shows its progress")


@_words.register
def _holder_silent(cause: HolderSilent, job: Explanation) -> Words:
    silence = "which is not listed" if cause.silent is None else f"without heartbeat for {span(cause.silent)}"
    ends = "expired" if cause.is_expired else "ends"
    matter = f"is held by worker {line(cause.worker_id)}, {silence}, whose lease {ends} at {_at(cause.until_at)}"
    if not cause.live_workers:
        return Words(matter, "no worker is alive, so start one with `holdfast worker run`")
    reset = f"`holdfast lease reset {_short(job)}`"
    free = f"if that worker is certainly dead, free the job now with {reset}"
    return Words(matter, f"another worker will take it over then; {free}")


@_words.register
def _not_due(cause: NotDue, job: Explanation) -> Words:
    matter = f"is not due until {_at(cause.due_at)}"
    if cause.attempt:
        show = f"`holdfast job show {_short(job)}`"
        return Words(matter, f"it will run again; {show} shows how attempt {cause.attempt} ended")
    return Words(matter, f"wait, or cancel it with `holdfast job cancel {_short(job)}`")


@_words.register
def _order_key_held(cause: OrderKeyHeld, _job: Explanation) -> Words:
    matter, remedy = _of_job(cause.head)
    before = f"waits for job {_name(cause.head)}, which is before it in order key {line(cause.order_key)}"
    return Words(f"{before} and {matter}", remedy)


@_words.register
def _waiting_for_jobs(cause: WaitingForJobs, _job: Explanation) -> Words:
    names = [
        f"{short_id(parent.seq, parent.job_id)} ({line(parent.task)}{', running' if parent.is_running else ''})"
        for parent in cause.parents
    ]
    more = f" and {cause.number - len(names):,} more" if cause.number > len(names) else ""
    first = short_id(cause.parents[0].seq, cause.parents[0].job_id)
    matter = f"waits for the end of {counted(cause.number, 'job')}, {', '.join(names)}{more}"
    return Words(matter, f"see `holdfast job explain {first}`")


@_words.register
def _no_longer_blocked(_cause: NoLongerBlocked, _job: Explanation) -> Words:
    return Words("is blocked, but nothing that it waited for is left", "a live worker makes it ready within seconds")


@_words.register
def _queue_paused(cause: QueuePaused, _job: Explanation) -> Words:
    queue = line(cause.queue)
    return Words(f"waits because queue {queue} is paused", f"resume it with `holdfast queue resume {queue}`")


@_words.register
def _task_paused(cause: TaskPaused, _job: Explanation) -> Words:
    task = line(cause.task)
    return Words(f"waits because task {task} is paused", f"resume it with `holdfast task resume {task}`")


@_words.register
def _queue_unserved(cause: QueueUnserved, _job: Explanation) -> Words:
    queue, live = line(cause.queue), cause.live_workers
    if not live:
        return Words("is due, but no worker is alive", "start one with `holdfast worker run`")
    others = "the only live worker serves" if live == 1 else f"the {live:,} live workers serve"
    matter = f"is due, but no live worker serves queue {queue} ({others} other queues)"
    return Words(matter, f"start one with `holdfast worker run --queues {queue}`")


@_words.register
def _task_unknown(cause: TaskUnknown, _job: Explanation) -> Words:
    workers = some([line(worker_id) for worker_id in cause.worker_ids])
    those = f"{workers} {'does' if len(cause.worker_ids) == 1 else 'do'} not"
    matter = f"is due, but no live worker of queue {line(cause.queue)} knows task {line(cause.task)} ({those})"
    return Words(matter, "start a worker whose app defines the task, or restart these with the current code")


@_words.register
def _limit_reached(cause: LimitReached, _job: Explanation) -> Words:
    held = some([f"{short_id(holder.seq, holder.job_id)} on {line(holder.worker_id)}" for holder in cause.holders])
    limit = f"the limit of {cause.kind} {line(cause.name)}, {counted(cause.most, 'job')} at once, is reached"
    raised = f"`holdfast {cause.kind} limit {line(cause.name)} --running {cause.most + 1}`"
    return Words(f"is ready, but {limit}{f' by {held}' if held else ''}", f"wait for an end, or raise it with {raised}")


@_words.register
def _rate_limited(cause: RateLimited, _job: Explanation) -> Words:
    matter = f"may not start before {_at(cause.until_at)} by the rate of {cause.kind} {line(cause.name)}, {cause.rate}"
    return Words(matter, f"wait, or change it with `holdfast {cause.kind} limit {line(cause.name)} --rate N/TIME`")


@_words.register
def _key_limit_reached(cause: KeyLimitReached, _job: Explanation) -> Words:
    held = some([f"{short_id(holder.seq, holder.job_id)} on {line(holder.worker_id)}" for holder in cause.holders])
    task, key = line(cause.task), line(cause.limit_key)
    limit = f"the limit of task {task} per key, {counted(cause.most, 'job')} at once, is reached for key {key}"
    raised = f"`holdfast task limit {task} --per-key --running {cause.most + 1}`"
    return Words(f"waits because {limit}{f' by {held}' if held else ''}", f"wait for an end, or raise it with {raised}")


@_words.register
def _key_rate_limited(cause: KeyRateLimited, _job: Explanation) -> Words:
    task, key = line(cause.task), line(cause.limit_key)
    rate = f"the rate of task {task} per key, {cause.rate}, for key {key}"
    matter = f"may not start before {_at(cause.until_at)} by {rate}"
    return Words(matter, f"wait, or change it with `holdfast task limit {task} --per-key --rate N/TIME`")


@_words.register
def _workers_busy(cause: WorkersBusy, _job: Explanation) -> Words:
    whole = "the only worker that can run it is" if cause.workers == 1 else f"all {cause.workers:,} workers are"
    matter = f"is ready, but {whole} busy ({counted(cause.slots, 'slot')})"
    ahead = _ahead(cause.ahead, is_capped=cause.is_ahead_capped)
    return Words(f"{matter}, with {ahead} ahead", "wait, or add workers or concurrency")


@_words.register
def _next_up(cause: NextUp, _job: Explanation) -> Words:
    ahead = _ahead(cause.ahead, is_capped=cause.is_ahead_capped)
    matter = f"is ready, with {ahead} ahead, and {counted(cause.workers, 'live worker')} can run it"
    return Words(matter, "it should start soon, and `holdfast top` shows whether its queue moves")


def _ahead(number: int, *, is_capped: bool) -> str:
    if is_capped:
        return f"{number:,} or more jobs"
    return f"about {counted(number, 'job')}" if number else "no job"
