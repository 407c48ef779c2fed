"""The command: run scenarios, show a table, keep the figures."""

from __future__ import annotations

import logging
from datetime import UTC, datetime
from pathlib import Path

import click
from rich.console import Console

from benchmarks.bench import Bench, Sizes
from benchmarks.record import Record, report, save
from benchmarks.scenarios import SCENARIOS, chosen
from benchmarks.stores import store_of
from benchmarks.table import table_of

_RESULTS = Path(__file__).parent / "results"


@click.command()
@click.option("--jobs", default=100_000, show_default=True, help="Size; depth and memory take ten times as many.")
@click.option("--repeats", default=3, show_default=True, help="Of each, by turns; the median is kept.")
@click.option("--json", "path", type=click.Path(path_type=Path), help="File for the figures.")
@click.option("--url", help="Store: databases are made beside the file named here. Default: a temporary directory.")
@click.option("--only", multiple=True, help=f"Begin of a name, may be repeated: {', '.join(SCENARIOS)}.")
def main(jobs: int, repeats: int, path: Path | None, url: str | None, only: tuple[str, ...]) -> None:
    """Measure Holdfast beside hand-written loops."""
    logging.basicConfig(level=logging.ERROR)
    console = Console()
    try:
        store = store_of(url)
    except ValueError as error:
        raise click.UsageError(str(error)) from None
    scenarios = chosen(only)
    if not scenarios:
        message = f"no scenario begins with {', '.join(only)}: there are {', '.join(SCENARIOS)}"
        raise click.UsageError(message)
    bench = Bench(store, Sizes.of(jobs), repeats)
    began = datetime.now(UTC)
    records: list[Record] = []
    with console.status("") as status:
        for name, scenario in scenarios.items():
            status.update(f"{name} …")
            records.extend(scenario(bench))
    run = report(records, jobs=jobs, store=f"{store.name} {store.version}", at=began)
    target = path or _RESULTS / f"{began:%Y%m%dT%H%M%S}.json"
    save(run, target)
    console.print(table_of(run))
    console.print(f"kept in {target}", highlight=False)


if __name__ == "__main__":
    main()
