"""The figures as a table, and what each is to reach."""

from __future__ import annotations

from rich.table import Table

from benchmarks.record import Record, Report

AT_LEAST = {
    "sqlite": {"enqueue.bulk": 0.5, "drain.one": 0.5, "append.batch": 0.6, "consume.batch": 0.6},
    "postgresql": {
        "enqueue.bulk": 0.7,
        "enqueue.one": 0.8,
        "enqueue.hundred": 5.0,
        "drain.one": 0.65,
        "drain.held.200000": 0.9,
        "drain.held.2000000": 0.9,
        "append.batch": 0.6,
        "consume.batch": 0.6,
        "effects.batch100": 0.6,
        "effects.single10": 0.8,
        "effects.single32": 0.8,
        "kafka.produce": 0.6,
        "kafka.produce.idempotent": 0.6,
        "kafka.produce.sql": 1.0,
        "kafka.consume.100": 0.6,
        "kafka.consume.100.sql": 1.0,
        "kafka.consume.500": 0.5,
        "kafka.consume.500.sql": 1.0,
    },
    "mysql": {
        "enqueue.bulk": 0.6,
        "drain.one": 0.6,
        "drain.two": 0.6,
        "drain.two.to_one": 1.0,
        "drain.held.200000": 0.8,
        "append.batch": 0.6,
        "consume.batch": 0.6,
    },
    "redis": {"drain.one": 0.5, "drain.one.peer.bullmq": 3.0, "enqueue.bulk.peer.bullmq": 3.0},
}
"""By store: the ratio that a figure is to reach."""

AT_MOST = {
    "sqlite": {},
    "postgresql": {"latency.p50": 2.0, "latency.p99": 3.0},
    "redis": {"latency.peer.bullmq": 1.0},
}
"""By store: the ratio that a figure is to stay under."""

ALWAYS_AT_LEAST = {
    "enqueue.unique": 0.5,
    "enqueue.unique_one": 0.5,
    "http.enqueue": 0.5,
    "drain.order_keys": 0.3,
    "drain.beside_limit": 0.9,
}
"""The same on every store."""

ALWAYS_AT_MOST = {
    "claim.depth.ready": 1.2,
    "claim.depth.unknown_task": 1.2,
    "claim.depth.paused_queue": 1.2,
    "claim.depth.over_limit": 1.2,
    "streams.depth.lag": 1.2,
    "streams.depth.fetch": 1.2,
}
"""The same on every store."""

VALUE_AT_MOST = {
    "memory.drain": 20.0,
    "drain.four.lock_waits": 0.0,
    "drain.four.deadlocks": 0.0,
}
"""The value that a figure is to stay under."""

BYTES_AT_MOST = {
    "redis valkey": {"memory.waiting": 268.0, "memory.running": 501.0, "memory.completed": 238.0},
    "redis redis": {"memory.waiting": 376.0, "memory.running": 700.0, "memory.completed": 271.0},
}
"""By server: the bytes of a job, which are a fifth more than the layout was specified with."""

FASTEST_PEER = 1.3
"""The ratio to every rival that a drain on PostgreSQL is to reach."""


def aim_of(record: Record, server: str) -> tuple[str, bool]:
    """Return the aim of a figure in words, and whether it is met; ("", True) where there is none.

    `server` is that of the run, as `Machine.store` names it.
    """
    name, store, ratio = record.name, record.store, record.ratio or 0.0
    least = {**ALWAYS_AT_LEAST, **AT_LEAST.get(store, {})}.get(name)
    if store == "postgresql" and name.startswith("drain.one.peer."):
        least = FASTEST_PEER
    if least is not None:
        return f"ratio ≥ {least:g}", ratio >= least
    most = {**ALWAYS_AT_MOST, **AT_MOST.get(store, {})}.get(name)
    if most is not None:
        return f"ratio ≤ {most:g}", ratio <= most
    bound = {**VALUE_AT_MOST, **BYTES_AT_MOST.get(" ".join(server.split()[:2]), {})}.get(name)
    if bound is not None:
        return f"≤ {bound:g} {record.unit}", record.value <= bound
    return "", True


def table_of(run: Report) -> Table:
    """Return a run as a table."""
    machine = run.machine
    table = Table(
        title=f"{machine.store}, {run.jobs:,} jobs",
        caption=f"{machine.cores} cores, {machine.cpu}, {machine.python}, {machine.kernel}; {machine.driver}; "
        f"sync {machine.sync_us:g} µs, load {machine.load:g}; "
        f"holdfast {machine.holdfast}, commit {run.commit}, {run.at}",
    )
    table.add_column("scenario", no_wrap=True, min_width=max((len(record.name) for record in run.records), default=0))
    for heading in ("holdfast", "compared", "unit", "ratio", "aim"):
        table.add_column(heading, justify="left" if heading in {"unit", "aim"} else "right")
    for record in run.records:
        aim, is_met = aim_of(record, machine.store)
        table.add_row(
            record.name,
            shown(record.value),
            "" if record.raw is None else shown(record.raw),
            record.unit,
            "" if record.ratio is None else f"{record.ratio:.2f}",
            aim if is_met else f"[red]{aim}: missed[/red]",
        )
    return table


def shown(value: float) -> str:
    """Return a figure for people."""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.2f}"
