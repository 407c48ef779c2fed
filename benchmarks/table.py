"""The figures as a table."""

from __future__ import annotations

from rich.table import Table

from benchmarks.record import Record, Report

AT_LEAST = {"enqueue.bulk": 0.5, "drain.one": 0.5}
"""The ratio that a figure is to reach."""

AT_MOST = {"claim.depth.ready": 1.2, "claim.depth.unknown_task": 1.2, "claim.depth.paused_queue": 1.2}
"""The ratio that a figure is to stay under."""

VALUE_AT_MOST = {"memory.drain": 20.0}
"""The value that a figure is to stay under."""


def target_of(record: Record) -> tuple[str, bool]:
    """Return the aim of a figure in words, and whether it is met; ("", True) where there is none."""
    name, ratio = record.name, record.ratio or 0.0
    if name in AT_LEAST:
        return f"ratio ≥ {AT_LEAST[name]:g}", ratio >= AT_LEAST[name]
    if name in AT_MOST:
        return f"ratio ≤ {AT_MOST[name]:g}", ratio <= AT_MOST[name]
    if name in VALUE_AT_MOST:
        return f"≤ {VALUE_AT_MOST[name]:g} {record.unit}", record.value <= VALUE_AT_MOST[name]
    return "", True


def table_of(run: Report) -> Table:
    """Return a run as a table."""
    machine = run.machine
    table = Table(
        title=f"{machine.store}, {run.jobs:,} jobs",
        caption=f"{machine.cores} cores, {machine.cpu}, {machine.python}, {machine.kernel}; "
        f"sync {machine.sync_us:g} µs, load {machine.load:g}; commit {run.commit}, {run.at}",
    )
    table.add_column("scenario")
    for heading in ("holdfast", "raw", "unit", "ratio", "aim"):
        table.add_column(heading, justify="left" if heading in {"unit", "aim"} else "right")
    for record in run.records:
        aim, is_met = target_of(record)
        table.add_row(
            record.name,
            _shown(record.value),
            "" if record.raw is None else _shown(record.raw),
            record.unit,
            "" if record.ratio is None else f"{record.ratio:.2f}",
            aim if is_met else f"[red]{aim}: missed[/red]",
        )
    return table


def _shown(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.2f}"
