"""Print jobs, for a terminal and for a pipe."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

import click
from rich.console import RenderableType
from rich.text import Text

from holdfast.cli.table import Cell, Column, Id, console, dated, rendered, show_block, show_fields, show_table
from holdfast.model.ids import short_id
from holdfast.model.job import JobState
from holdfast.reports.job_text import call_of, progress_of
from holdfast.store.values import AttemptView, JobDetails, JobView, LeaseView

_JOBS = (
    Column("id"),
    Column("state", coloured=True),
    Column("queue", shrinks=True),
    Column("task", shrinks=True),
    Column("attempt", right=True),
    Column("when"),
    Column("reason", shrinks=True),
)
_ATTEMPTS = (
    Column("attempt", right=True),
    Column("outcome", coloured=True),
    Column("ended"),
    Column("worker"),
    Column("error"),
)


def show_jobs(jobs: Sequence[JobView]) -> None:
    """Print a list of jobs; `when` is the most relevant instant of the job's state."""
    if not jobs:
        click.echo("No jobs.", err=True)
        return
    show_table(_JOBS, [_row(job) for job in jobs])


def render_jobs(jobs: Sequence[JobView], width: int) -> RenderableType:
    """Return the same list for a terminal of this width."""
    return rendered(_JOBS, [_row(job) for job in jobs], width) if jobs else Text("No jobs.")


def _row(job: JobView) -> tuple[Cell, ...]:
    job_id = Id(short_id(job.seq, job.id), job.id)
    return job_id, job.state, job.queue, job.task, job.attempt, _when(job), job.reason


def _when(job: JobView) -> datetime:
    if job.state is JobState.RUNNING:
        return job.started_at or job.run_at
    return job.finished_at or job.run_at


def show_details(details: JobDetails, *, show_args: bool) -> None:
    """Print a job, its lease, its attempts and the last error."""
    job = details.job
    fields: list[tuple[Column | str, Cell]] = [
        ("id", job.id),
        (Column("state", coloured=True), job.state),
        ("queue", job.queue),
        ("task", job.task),
        ("order_key", job.order_key),
        ("limit_key", job.limit_key),
        ("unique_key", details.unique_key),
        ("priority", job.priority),
        ("attempt", _attempts(job)),
        ("max_attempts", job.max_attempts),
        ("enqueued_at", dated(job.enqueued_at)),
        ("run_at", dated(job.run_at)),
        ("started_at", dated(job.started_at)),
        ("finished_at", dated(job.finished_at)),
        ("reason", job.reason),
    ]
    if details.lease is not None:
        fields += _lease(details.lease)
    if show_args:
        headers = [(f"header {name}", value) for name, value in details.headers.items()]
        call = call_of(job.task, details.payload)
        fields += [("call", call) if call else ("payload", details.payload), *headers, ("result", details.result)]
    show_fields([(name, value) for name, value in fields if value is not None])
    attempts = details.all_attempts
    if attempts:
        click.echo()
        show_table(_ATTEMPTS, [_attempt(attempt) for attempt in attempts])
        traceback = details.attempts[-1].traceback if details.attempts else None
        if traceback:
            click.echo("\nThe last error:")
            show_block(traceback)
    if not show_args and console().is_terminal:
        click.echo("\nAdd --show-args for the call, headers and result; they may contain secrets.", err=True)


def _attempts(job: JobView) -> str:
    """Return the number of attempts and, as it decides about another one, how many of them count."""
    if job.used_attempts is None:
        return f"{job.attempt}, used \N{EN DASH} (not kept after completion)" if job.attempt > 1 else str(job.attempt)
    return f"{job.attempt}, used {job.used_attempts} of {job.max_attempts}"


def _lease(lease: LeaseView) -> list[tuple[Column | str, Cell]]:
    fields: list[tuple[Column | str, Cell]] = [
        ("worker", lease.worker_id),
        ("fence", lease.fence),
        ("lease ends in", lease.expires_in),
        ("progress", progress_of(lease)),
    ]
    if lease.cancel_asked:
        fields.append(("cancel requested", lease.cancel_asked))
    return fields


def _attempt(attempt: AttemptView) -> tuple[Cell, ...]:
    error = ": ".join(part for part in (attempt.error_class, attempt.message) if part)
    return attempt.attempt, attempt.outcome, attempt.ended_at, attempt.worker_id, error or None
