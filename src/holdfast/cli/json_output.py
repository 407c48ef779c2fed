"""The output of `--json`: one JSON document in ASCII.

Jobs, attempts, queues and leases have the field names of `holdfast.store.values`. Instants are ISO 8601 strings in UTC,
durations are seconds, and fences are strings (they may exceed the precision of a float).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

import click
import msgspec

from holdfast.cli.times import iso
from holdfast.model.instants import to_datetime
from holdfast.store.stream_values import NodeView
from holdfast.store.values import AttemptView, JobDetails, JobView, LeaseView, QueueView, WorkerView

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
    if isinstance(value, timedelta):
        return value.total_seconds()
    message = f"{type(value).__name__} cannot be part of a JSON document"
    raise TypeError(message)


def fields_of(view: JobView | LeaseView | AttemptView | QueueView) -> dict[str, Any]:
    """Return the fields of a view; fields `…_us` become instants named `…_at`."""
    fields: dict[str, Any] = {}
    for name, value in msgspec.structs.asdict(view).items():
        if name.endswith("_us"):
            fields[f"{name.removesuffix('_us')}_at"] = None if value is None else to_datetime(value)
        else:
            fields[name] = str(value) if name == "fence" else value
    return fields


def details_fields(details: JobDetails, *, show_args: bool) -> dict[str, Any]:
    """Return a job with its lease and attempts; with `show_args` also arguments, headers and the result."""
    fields = fields_of(details.job)
    fields["lease"] = None if details.lease is None else fields_of(details.lease)
    fields["attempts"] = [fields_of(attempt) for attempt in details.attempts]
    if show_args:
        fields |= {"payload": details.payload, "headers": details.headers, "result": details.result}
    return fields


def worker_fields(view: WorkerView) -> dict[str, Any]:
    """Return the last heartbeat of a worker, and its age."""
    return {
        **msgspec.structs.asdict(view.heartbeat),
        "started_at": view.started_at,
        "silent": view.silent,
        "is_silent": is_silent(view),
    }


def is_silent(view: WorkerView | NodeView) -> bool:
    """Return whether the last heartbeat of a worker is older than its lease, or that of a node older than its ttl.

    Live ones send heartbeats at least twice as often.
    """
    return view.silent > (view.ttl if isinstance(view, NodeView) else view.heartbeat.lease)
