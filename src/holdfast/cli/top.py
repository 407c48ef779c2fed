"""`holdfast top`: queues, rates, workers, failures and consumers on one screen."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click
import msgspec
from rich.console import Console, RenderableType

from holdfast.cli.json_output import json_option, show_json
from holdfast.cli.live import Frame, show_live
from holdfast.cli.table import console
from holdfast.cli.target import StoreTarget, store_options
from holdfast.cli.times import duration
from holdfast.cli.top_view import TopSnapshot, render, snapshot_fields
from holdfast.model.job import JobState
from holdfast.reports.rates import WINDOW, RateMeter
from holdfast.reports.times import now

if TYPE_CHECKING:
    from holdfast.app.app import App

MOST_COUNTED = 10_000
"""Counting stops at this many jobs of a task and state: a frame costs the same however many jobs there are."""

_FAILURES = 100  # the latest failed jobs, which are grouped by their errors


@click.command()
@click.option(
    "--interval", type=duration, metavar="DURATION", default="1s", show_default=True, help="The time between frames."
)
@click.option("--once", is_flag=True, help="Print one frame and exit, as always in a pipe.")
@json_option
@store_options
def top(target: StoreTarget, *, interval: float, once: bool, as_json: bool) -> None:
    """Watch the store: queues, rates, workers, failures and consumers, redrawn every second.

    q or Ctrl-C ends it. A frame takes six queries, whatever the number of jobs: `10,000+` means that counting stopped
    there. If they take long, frames come less often, so that the store spends at most a tenth of its time on them.

    Live rates are those of the last 10 seconds; a single frame shows the numbers of the last 5 minutes.

    \b
    holdfast top
    holdfast top --once
    """  # noqa: D301 - \b keeps click from joining lines
    out = console()
    if as_json:
        show_json(snapshot_fields(target.run(look)))
    elif once or not out.is_terminal:
        out.print(render(target.run(look), out.width, None))
    else:
        show_live(target, _frames(), interval, full_screen=True)


def _frames() -> Frame:
    """Return what draws frames, with the rates between them."""
    meter = RateMeter()

    async def frame(app: App, out: Console) -> RenderableType:
        seen = await look(app)
        measured = meter.add(seen.counts, seen.at)
        return render(msgspec.structs.replace(seen, measured=measured, is_live=True), out.width, out.height)

    return frame


async def look(app: App) -> TopSnapshot:
    """Read everything that a frame shows: six queries."""
    has_streams = app.backend.capabilities.has_streams
    return TopSnapshot(
        store=app.backend.url,
        at=now(),
        queues=tuple(await app.queues.list(most=MOST_COUNTED)),
        counts=tuple(await app.jobs.counts(WINDOW)),
        workers=tuple(await app.workers()),
        failed=tuple((await app.jobs.list(JobState.FAILED, limit=_FAILURES)).jobs),
        nodes=tuple(await app.nodes()) if has_streams else (),
        consumers=tuple(await app.consumers.list()) if has_streams else (),
    )
