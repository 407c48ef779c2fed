"""`holdfast job graph`: the jobs that are connected with one by `after`, as text, as Mermaid or as JSON."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import TYPE_CHECKING

import click

from holdfast.cli.ids import whole_id
from holdfast.cli.json_output import json_option, show_json
from holdfast.cli.target import StoreTarget, store_options
from holdfast.model.ids import short_id
from holdfast.store.values import GraphJob, JobGraph

if TYPE_CHECKING:
    from holdfast.app.app import App

_MOST = 200


@click.command()
@click.argument("job_id", metavar="ID")
@click.option("--mermaid", is_flag=True, help="Print a flowchart in the language of Mermaid.")
@click.option(
    "--limit",
    type=click.IntRange(1, 10_000),
    default=_MOST,
    show_default=True,
    help="The most jobs to show.",
)
@json_option
@store_options
def graph(target: StoreTarget, *, job_id: str, mermaid: bool, limit: int, as_json: bool) -> None:
    """Draw the jobs that are connected with a job by after=, chain or group.

    \b
    holdfast job graph 01a1de74-f8d6
    holdfast job graph 01a1de74-f8d6 --mermaid
    """  # noqa: D301 - \b keeps click from joining lines

    async def look(app: App) -> tuple[str, JobGraph]:
        whole = await whole_id(app, job_id)
        return whole, await app.jobs.graph(whole, limit=limit)

    asked, found = target.run(look)
    if as_json:
        show_json({"jobs": [_fields(job) for job in found.jobs], "is_cut": found.is_cut})
        return
    for line in mermaid_lines(found) if mermaid else text_lines(found, asked):
        click.echo(line)
    if found.is_cut:
        click.echo(f"There are more than {limit} jobs: pass a larger --limit.", err=True)


def _fields(job: GraphJob) -> dict[str, object]:
    return {"id": job.id, "queue": job.queue, "task": job.task, "state": job.state, "parents": job.parents}


def text_lines(graph: JobGraph, asked: str) -> Iterator[str]:
    """Yield a tree: each job once below its first parent, with the others named."""
    names = {job.id: short_id(job.seq, job.id) for job in graph.jobs}
    children: defaultdict[str | None, list[GraphJob]] = defaultdict(list)
    for job in graph.jobs:
        children[job.parents[0] if job.parents else None].append(job)
    pending = [(job, 0) for job in reversed(children[None])]
    while pending:
        job, depth = pending.pop()
        also = ", ".join(names[parent] for parent in job.parents[1:])
        after = f"  also after {also}" if also else ""
        mark = "  ←" if job.id == asked else ""
        lead = "   " * (depth - 1) + "└─ " if depth else ""
        yield f"{lead}{names[job.id]}  {job.task}  {job.state}{after}{mark}"
        pending += [(child, depth + 1) for child in reversed(children[job.id])]


def mermaid_lines(graph: JobGraph) -> Iterator[str]:
    """Yield a flowchart."""
    nodes = {job.id: f"job{job.seq}" for job in graph.jobs}
    yield "flowchart TD"
    for job in graph.jobs:
        yield f'    {nodes[job.id]}["{job.task}<br/>{short_id(job.seq, job.id)}<br/>{job.state}"]'
    for job in graph.jobs:
        for parent in job.parents:
            yield f"    {nodes[parent]} --> {nodes[job.id]}"
