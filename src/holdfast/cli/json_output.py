"""The output of `--json`: one JSON document in ASCII.

Jobs, attempts, queues and leases have the field names of `holdfast.store.values`. Instants are ISO 8601 strings in UTC
with names in `_at`, durations are numbers with names in `_seconds`, and fences are strings (they may exceed the
precision of a float). A `state` is one word.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime, timedelta
from functools import cache
from typing import Any, get_args

import click
import msgspec

from holdfast.reports.states import queue_state, worker_state
from holdfast.reports.times import iso
from holdfast.store.values import AttemptView, Count, JobDetails, JobView, LeaseView, QueueView, TaskView, WorkerView

json_option = click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")


def show_json(document: Mapping[str, Any]) -> None:
    """Print a document in printable ASCII, so that stored data cannot control the terminal."""
    click.echo(json.dumps(document, default=_plain, indent=2))


def json_text(document: Mapping[str, Any]) -> str:
    """Return a document as one line of printable ASCII."""
    return json.dumps(document, default=_plain)


def _plain(value: object) -> object:
    if isinstance(value, datetime):
        return iso(value)
    message = f"{type(value).__name__} cannot be part of a JSON document"
    raise TypeError(message)


def seconds(span: timedelta | None) -> float | None:
    """Return a duration for a field whose name ends in `_seconds`."""
    return None if span is None else span.total_seconds()


def fields_of(view: JobView | LeaseView | AttemptView | QueueView | TaskView | Count) -> dict[str, Any]:
    """Return the fields of a view; a duration becomes a number named `…_seconds`, a fence a string."""
    fields: dict[str, Any] = {}
    spans = _spans_of(type(view))
    for name, value in msgspec.structs.asdict(view).items():
        if name in spans:
            fields[f"{name}_seconds"] = seconds(value)
        else:
            fields[name] = str(value) if name == "fence" else value
    return fields


@cache
def _spans_of(kind: type[msgspec.Struct]) -> frozenset[str]:
    """Return the names of the fields that hold durations, also if they are None at the moment."""
    fields = msgspec.structs.fields(kind)
    return frozenset(field.name for field in fields if timedelta in (field.type, *get_args(field.type)))


def details_fields(details: JobDetails, *, show_args: bool) -> dict[str, Any]:
    """Return a job with its lease and attempts; with `show_args` also arguments, headers and the result."""
    fields = fields_of(details.job) | {"timeout_seconds": details.timeout, "unique_key": details.unique_key}
    fields["lease"] = None if details.lease is None else fields_of(details.lease)
    fields["attempts"] = [fields_of(attempt) for attempt in details.all_attempts]
    if show_args:
        result = None if details.result is None else _data(details.result)
        fields |= {"payload": _data(details.payload), "headers": details.headers, "result": result}
    return fields


def _data(text: str) -> object:
    """Return stored JSON as data, and damaged JSON as the text that is stored."""
    try:
        return json.loads(text)
    except ValueError:
        return text


def queue_fields(view: QueueView | TaskView) -> dict[str, Any]:
    """Return a queue or task with its state and the number of its jobs in each state."""
    fields = fields_of(view)
    del fields["paused"]
    limits: dict[str, Any] = {
        name: None if (limit := getattr(view, name)) is None else msgspec.structs.asdict(limit)
        for name in ("limit", "key_limit")
        if name in fields
    }
    return {"name": fields.pop("name"), "state": queue_state(view), **fields, **limits}


def worker_fields(view: WorkerView) -> dict[str, Any]:
    """Return the last heartbeat of a worker, and its age."""
    heartbeat = view.heartbeat
    return {
        "worker_id": heartbeat.worker_id,
        "state": worker_state(view),
        "host": heartbeat.host,
        "pid": heartbeat.pid,
        "queues": heartbeat.queues,
        "tasks": heartbeat.tasks,
        "running": view.running,
        "concurrency": heartbeat.concurrency,
        "lease_seconds": seconds(heartbeat.lease),
        "started_at": view.started_at,
        "silent_seconds": seconds(view.silent),
        "supervisor_id": heartbeat.supervisor_id,
    }
