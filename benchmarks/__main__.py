"""The command of `make bench`: run scenarios, show a table, keep the figures in a file."""

from __future__ import annotations

import logging
from datetime import datetime
from pathlib import Path

import click
from rich.console import Console

from benchmarks.record import save
from benchmarks.run import Plan, UnknownScenarioError, UnknownStoreError, run
from benchmarks.scenarios import SCENARIOS
from benchmarks.table import table_of

_RESULTS = Path(__file__).parent / "results"


@click.command()
@click.option("--jobs", default=100_000, show_default=True, help="Size; depth and memory take ten times as many.")
@click.option("--repeats", default=3, show_default=True, help="Of each, by turns; the median is kept.")
@click.option("--json", "path", type=click.Path(path_type=Path), help="File for the figures.")
@click.option("--url", envvar="HOLDFAST_BENCH_URL", help="Store. Default: SQLite in the folder for temporary files.")
@click.option("--events", envvar="HOLDFAST_EVENTS_URL", help="Kafka, for kafka.*, beside PostgreSQL.")
@click.option("--only", multiple=True, help=f"Prefix of a name, may be repeated: {', '.join(SCENARIOS)}.")
@click.option("--peers", is_flag=True, help="Measure other libraries too.")
def main(
    *,
    jobs: int,
    repeats: int,
    path: Path | None,
    url: str | None,
    events: str | None,
    only: tuple[str, ...],
    peers: bool,
) -> None:
    """Measure Holdfast beside hand-written loops."""
    logging.basicConfig(level=logging.ERROR)
    console = Console()
    try:
        with console.status("") as status:
            done = run(Plan(url, jobs, repeats, only, peers, events), lambda name: status.update(f"{name} …"))
    except (UnknownStoreError, UnknownScenarioError) as error:
        raise click.UsageError(str(error)) from None
    target = path or _RESULTS / f"{datetime.fromisoformat(done.at):%Y%m%dT%H%M%S}.json"
    save(done, target)
    console.print(table_of(done))
    for peer in done.peers:
        text = f"{peer.name} {peer.version}" if peer.reason is None else f"{peer.name} not measured: {peer.reason}"
        console.print(text, highlight=False, markup=False)
    console.print(f"kept in {target}", highlight=False)


if __name__ == "__main__":
    main()
