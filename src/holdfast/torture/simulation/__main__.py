"""`python -m holdfast.torture.simulation`: run seeds, and show which rule was broken."""

from __future__ import annotations

import sys
import time
from collections import Counter

import click

from holdfast.torture.simulation.run import SimulationVerdict, run_seed
from holdfast.torture.simulation.shrink import shrink
from holdfast.torture.simulation.world import about, shown


@click.command()
@click.option("--seed", type=int, help="Run one seed and show its complete trace.")
@click.option(
    "--seeds", type=click.IntRange(min=1), help="Run this many seeds and stop at the first that breaks a rule."
)
@click.option("--first", type=int, default=0, show_default=True, help="The first of --seeds.")
@click.option(
    "--liveness", is_flag=True, help="Then stop the faults: all jobs must drain, and every worker must shut down."
)
@click.option("--shrink/--no-shrink", "shrinks", default=True, help="Make a failing scenario smaller.")
def main(*, seed: int | None, seeds: int | None, first: int, liveness: bool, shrinks: bool) -> None:
    """Simulate workers over the reference model; exit with 1 if a rule is broken."""
    if (seed is None) == (seeds is None):
        raise click.UsageError("give --seed N or --seeds N")
    if seed is not None:
        verdict = run_seed(seed, liveness=liveness, hashed=True)
        for entry in verdict.trace:
            click.echo(shown(entry))
        click.echo(f"{verdict.steps} steps, {verdict.seconds:.3f} virtual seconds, trace {verdict.digest[:16]}")
        failed = verdict if verdict.rule is not None else None
    else:
        failed = _run_many(range(first, first + (seeds or 0)), liveness=liveness)
    if failed is not None:
        _report(failed, liveness=liveness, shrinks=shrinks)
        sys.exit(1)


def _run_many(seeds: range, *, liveness: bool) -> SimulationVerdict | None:
    """Run seeds until one breaks a rule; print how many ran, how fast, and which faults occurred."""
    befell: Counter[str] = Counter()
    steps = 0
    began = time.process_time()
    for seed in seeds:
        verdict = run_seed(seed, liveness=liveness)
        steps += verdict.steps
        befell.update(entry[2].partition(" (")[0] for entry in verdict.trace)
        if verdict.rule is not None:
            return verdict
    spent = max(time.process_time() - began, 1e-9)
    click.echo(f"{len(seeds)} seeds, {steps} steps, {len(seeds) / spent:.0f} seeds a second of CPU: every rule held")
    click.echo(", ".join(f"{what} {count}" for what, count in sorted(befell.items())))
    return None


def _report(failed: SimulationVerdict, *, liveness: bool, shrinks: bool) -> None:
    """Print which rule was broken, and the trace of the job."""
    _show(failed, f"seed {failed.scenario.seed} breaks a rule at step {failed.steps}")
    if shrinks:
        small = shrink(failed, liveness=liveness)
        scenario = small.scenario
        size = f"{len(scenario.seats)} workers, {len(scenario.works)} jobs, {len(scenario.events)} faults"
        _show(small, f"the same rule with {size}, at step {small.steps}")
    mode = " --liveness" if liveness else ""
    click.echo(f"\nagain: python -m holdfast.torture.simulation --seed {failed.scenario.seed}{mode}")


def _show(verdict: SimulationVerdict, title: str) -> None:
    job = "" if verdict.job_id is None else f" ({verdict.job_id})"
    click.echo(f"\n{title}\n  {verdict.rule}: {verdict.message}{job}")
    for entry in about(verdict.trace, verdict.job_id):
        click.echo("  " + shown(entry))


if __name__ == "__main__":
    main()
