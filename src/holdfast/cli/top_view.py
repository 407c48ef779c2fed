"""A frame of `holdfast top`, for 80 columns and 24 lines or more."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

import msgspec
from rich.console import Group, RenderableType
from rich.text import Text

from holdfast.cli.json_output import queue_fields, seconds, worker_fields
from holdfast.cli.table import STYLES, Cell, Column, fitted, shortened, table_of
from holdfast.reports.failures import failure_groups
from holdfast.reports.rates import QueueRate, rates_of, shown_rate, sums_of
from holdfast.reports.states import consumer_state, live_ids, owners_of, queue_state, worker_state
from holdfast.reports.text import line
from holdfast.store.stream_values import ConsumerView, NodeView
from holdfast.store.values import Count, JobView, QueueView, WorkerView


def _queue_columns(recently: str) -> tuple[Column, ...]:
    return (
        Column("queue", shrinks=True),
        Column("state", coloured=True),
        Column("ready", right=True),
        Column("running", right=True),
        Column("failed", right=True),
        Column(f"in{recently}", right=True),
        Column(f"done{recently}", right=True),
        Column("oldest"),
        Column("scheduled", right=True, optional=True, hides_zero=True),
        Column("blocked", right=True, optional=True, hides_zero=True),
    )


_WORKERS = (
    Column("worker", shrinks=True, keeps_end=True),
    Column("state", coloured=True),
    Column("heartbeat", right=True),
    Column("running", right=True),
    Column("queues", shrinks=True),
    Column("host", shrinks=True, optional=True),
)
_FAILURES = (
    Column("failed jobs", right=True),
    Column("task", shrinks=True),
    Column("last"),
    Column("error", shrinks=True),
)
_CONSUMERS = (
    Column("consumer", shrinks=True),
    Column("state", coloured=True),
    Column("lag", right=True),
    Column("behind"),
    Column("parked", right=True, hides_zero=True),
    Column("nodes", shrinks=True),
)
_HEAD = 2  # lines above the tables
_ROOM = 2  # lines of each table besides its rows: its headings, and an empty line
_ZERO = timedelta(0)


class TopSnapshot(msgspec.Struct, frozen=True):
    """Everything that a frame shows."""

    store: str
    at: datetime
    queues: tuple[QueueView, ...]
    counts: tuple[Count, ...]
    workers: tuple[WorkerView, ...]
    failed: tuple[JobView, ...]
    nodes: tuple[NodeView, ...]
    consumers: tuple[ConsumerView, ...]
    measured: dict[str, QueueRate] | None = None
    is_live: bool = False

    @property
    def recent(self) -> dict[str, QueueRate]:
        """What happened lately: live, per minute as measured between frames; else the numbers of five minutes."""
        return self.measured or {} if self.is_live else sums_of(self.counts)

    @property
    def recently(self) -> str:
        """The unit of these numbers."""
        return "/min" if self.is_live else " 5 min"


def snapshot_fields(snapshot: TopSnapshot) -> dict[str, Any]:
    """Return the fields for JSON."""
    rates, live = rates_of(snapshot.counts, snapshot.at), live_ids(snapshot.nodes)
    return {
        "store": snapshot.store,
        "at": snapshot.at,
        "queues": [{**queue_fields(view), **rates.get(view.name, QueueRate()).fields()} for view in snapshot.queues],
        "workers": [worker_fields(view) for view in snapshot.workers],
        "failures": [msgspec.structs.asdict(group) for group in failure_groups(snapshot.failed)],
        "consumers": [
            {
                "name": view.name,
                "state": consumer_state(view, live),
                "lag": view.lag,
                "behind_seconds": seconds(view.behind),
                "parked": view.parked,
            }
            for view in snapshot.consumers
        ],
    }


def render(snapshot: TopSnapshot, width: int, height: int | None) -> RenderableType:
    """Return a frame that fits the terminal; without a height, one with all rows."""
    rates = snapshot.recent
    tables = [
        (_queue_columns(snapshot.recently), "No queues. The first job creates one.", _queue_rows(snapshot, rates)),
        (_WORKERS, "No workers: start one with `holdfast worker run`.", _worker_rows(snapshot)),
        (_FAILURES, None, _failure_rows(snapshot)),
        (_CONSUMERS, None, _consumer_rows(snapshot)),
    ]
    shown = [table for table in tables if table[2] or table[1]]
    room = None if height is None else height - _HEAD - _ROOM * len(shown)
    rows_of = _shared(room, [len(rows) for _, _, rows in shown])
    parts: list[RenderableType] = [_title(snapshot, width), _totals(snapshot, rates)]
    for (columns, nothing, rows), number in zip(shown, rows_of, strict=True):
        parts.append(Text(""))
        if not rows:
            parts.append(Text(nothing or "", style="yellow"))
            continue
        chosen, texts = fitted(columns, rows[:number], width)
        if number < len(rows):
            texts = [*texts[:-1], [f"… {len(rows) - number + 1} more", *[""] * (len(chosen) - 1)]]
        parts.append(table_of(chosen, texts, ruled=False))
    return Group(*parts)


def _shared(room: int | None, wanted: Sequence[int]) -> list[int]:
    """Distribute lines among tables: each gets one in turn, until it has all of its lines."""
    if room is None:
        return list(wanted)
    given = [0] * len(wanted)
    while room > 0 and given != list(wanted):
        for index, number in enumerate(wanted):
            if given[index] < number and room > 0:
                given[index] += 1
                room -= 1
    return [max(number, min(1, want)) for number, want in zip(given, wanted, strict=True)]


def _title(snapshot: TopSnapshot, width: int) -> Text:
    at = f"{snapshot.at:%H:%M:%S} UTC"
    name = shortened(f"holdfast top  {line(snapshot.store)}", width - len(at) - 1, keeps_end=True)
    return Text.assemble((name.ljust(width - len(at)), "bold"), (at, "dim"), no_wrap=True)


def _totals(snapshot: TopSnapshot, rates: dict[str, QueueRate]) -> Text:
    states = ("ready", "running", "scheduled", "blocked", "failed")
    totals = {state: sum(getattr(view, state) for view in snapshot.queues) for state in states}
    text = Text(no_wrap=True, overflow="ellipsis")
    for state, number in totals.items():
        more = "+" if any(state in view.at_least for view in snapshot.queues) else ""
        text.append(f"{number:,}{more} {state}  ", style=STYLES[state] if number else "dim")
    done = sum(rate.completed for rate in rates.values())
    unit = "/min" if snapshot.is_live else " in 5 min"
    return text.append(f"{shown_rate(done) or 0} completed{unit}", style=STYLES["completed"] if done else "dim")


def _queue_rows(snapshot: TopSnapshot, rates: dict[str, QueueRate]) -> list[Sequence[Cell]]:
    """Return the queues, the one with the longest wait first."""
    views = sorted(snapshot.queues, key=lambda view: (-(view.oldest_ready or _ZERO), -view.running, view.name))
    return [
        (
            view.name,
            queue_state(view),
            _number(view, "ready"),
            view.running,
            _number(view, "failed"),
            shown_rate(rates.get(view.name, QueueRate()).enqueued),
            shown_rate(rates.get(view.name, QueueRate()).completed),
            view.oldest_ready,
            _number(view, "scheduled"),
            _number(view, "blocked"),
        )
        for view in views
    ]


def _number(view: QueueView, state: str) -> str:
    """Return how many jobs are in a state; with a plus if counting stopped there."""
    number: int = getattr(view, state)
    return f"{number:,}+" if state in view.at_least else f"{number:,}"


def _worker_rows(snapshot: TopSnapshot) -> list[Sequence[Cell]]:
    """Return the workers, live ones first."""
    views = sorted(snapshot.workers, key=lambda view: (worker_state(view), view.heartbeat.worker_id))
    return [
        (
            view.heartbeat.worker_id,
            worker_state(view),
            view.silent,
            f"{view.running}/{view.heartbeat.concurrency}",
            "every queue" if view.heartbeat.queues is None else ", ".join(view.heartbeat.queues),
            view.heartbeat.host,
        )
        for view in views
    ]


def _failure_rows(snapshot: TopSnapshot) -> list[Sequence[Cell]]:
    return [(group.jobs, group.task, group.last_at, group.error) for group in failure_groups(snapshot.failed)]


def _consumer_rows(snapshot: TopSnapshot) -> list[Sequence[Cell]]:
    live = live_ids(snapshot.nodes)
    return [
        (view.name, consumer_state(view, live), view.lag, view.behind, view.parked, ", ".join(owners_of(view)))
        for view in sorted(snapshot.consumers, key=lambda view: (-view.lag, view.name))
    ]
