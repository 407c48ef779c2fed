"""The report of a run, as text and as JSON."""

from __future__ import annotations

import os
import platform
from importlib.metadata import version

import msgspec

from holdfast.torture.checker import timeline_of
from holdfast.torture.checker.verdict import RunVerdict
from holdfast.torture.conductor import Conductor
from holdfast.torture.dump import Figures
from holdfast.torture.plan import MEANINGS, Fault

SHOWS = (
    "It shows, for these faults on this machine and store: whether any acknowledged job was lost, any effect was "
    "duplicated, any lease had two holders, and whether every job ended without intervention once the faults ended."
)
SHOWS_OF_STREAMS = (
    "It shows, for these faults on this machine and store: whether any acknowledged event was lost, any effect was "
    "duplicated or out of order, any share had two owners, and whether every consumer reached the end without "
    "intervention once the faults ended."
)
_TRIALS = (
    "No violation in n independent trials bounds the rate of failure at about 3/n with 95 % confidence. The trials of "
    "a run are not quite independent: read it as an order of magnitude."
)
_SYNC = (
    "kill -9 and a killed server do not test fsync: the kernel keeps what was written. That the store syncs "
    "before it replies is shown separately, by tracing system calls."
)
_MACHINE = "One machine and one clock: no partition between machines, no drift between their clocks, no failover."
_TWICE = "A handler may run twice at once, if a worker was stopped and has not noticed: only one of them has an effect."
CANNOT = (_TRIALS, _SYNC, _MACHINE, _TWICE)


class FaultCount(msgspec.Struct, frozen=True, kw_only=True):
    """How often a fault was injected, how often it was planned, and why it could not be."""

    done: int
    wanted: int
    meaning: str
    refused: str | None = None


class RunReport(msgspec.Struct, kw_only=True):
    """A run and its verdict."""

    run: str
    seed: int
    profile: str
    lease: float
    store: str
    url: str
    versions: dict[str, str]
    machine: dict[str, str]
    is_clean: bool
    is_drained: bool
    reached: bool
    jobs: int
    states: dict[str, int]
    effects: int
    attempts_without_completion: dict[str, int]
    most_attempts: int
    faults: dict[str, FaultCount]
    links_cut: int
    cuts_inside_commit: int
    cuts_at_statements: int
    """At autocommitted statements."""
    workers_started: int
    workers_died: int
    seconds: dict[str, float]
    jobs_per_second: float
    recoveries: dict[str, float]
    latency: dict[str, float]
    latency_all: dict[str, float]
    bounds: dict[str, float]
    shows: str = SHOWS
    cannot: tuple[str, ...] = CANNOT
    verdict: RunVerdict | None = None
    violations: list[str] = []
    history: str = ""
    unit: str = "jobs"
    """What was counted: jobs or events."""


def report_of(conductor: Conductor, figures: Figures, verdict: RunVerdict, times: list[float]) -> RunReport:
    """Assemble the report."""
    plan, progress = conductor.plan, conductor.progress
    wrong_steps = [f"steps: job {job}: {what}" for job, what in figures.wrong_steps]
    jobs = sum(figures.states.values())
    ended = jobs - sum(figures.states.get(state, 0) for state in progress.open_states)
    links_cut, commits, alone = conductor.cuts
    done = conductor.log.done
    kills = done[Fault.KILL] + done[Fault.FAILPOINT]
    return RunReport(
        run=plan.run,
        seed=plan.seed,
        profile=plan.name,
        lease=plan.lease,
        store=conductor.target.store,
        url=conductor.target.shown,
        versions=_versions(conductor),
        machine=_machine(),
        is_clean=verdict.is_clean and not wrong_steps and conductor.is_drained,
        is_drained=conductor.is_drained,
        reached=conductor.nemesis.is_done and jobs >= plan.profile.jobs,
        jobs=jobs,
        states=figures.states,
        effects=figures.effects,
        attempts_without_completion=figures.attempts,
        most_attempts=figures.most_attempts,
        faults={
            str(kind): FaultCount(
                done=done[kind],
                wanted=conductor.nemesis.wanted.get(kind, 0),
                meaning=MEANINGS[kind],
                refused=conductor.nemesis.refused.get(kind),
            )
            for kind in Fault
        },
        links_cut=links_cut,
        cuts_inside_commit=commits,
        cuts_at_statements=alone,
        workers_started=progress.started,
        workers_died=progress.deaths,
        seconds={
            "faults": round(conductor.fault_seconds, 3),
            "drain": round(conductor.drain_seconds, 3),
            "whole": round(progress.seconds, 3),
        },
        jobs_per_second=round(ended / max(0.001, conductor.fault_seconds + conductor.drain_seconds), 1),
        recoveries=_recoveries(times),
        latency=figures.latency,
        latency_all=figures.latency_all,
        bounds={
            name: 3 / count
            for name, count in ((f"per {progress.unit.removesuffix('s')}", jobs), ("per kill", kills))
            if count
        },
        verdict=_with_timeline(verdict, conductor, figures.wrong_steps),
        violations=[*map(str, verdict.violations), *wrong_steps, *_undrained(conductor)],
        history=str(conductor.history),
        unit=progress.unit,
        shows=SHOWS if progress.unit == "jobs" else SHOWS_OF_STREAMS,
        cannot=(*CANNOT, *unjudged(verdict)),
    )


def unjudged(verdict: RunVerdict) -> list[str]:
    """Return the invariants that this run did not check, or only in part, and why."""
    return [
        f"{tally.invariant} ({tally.name}) was not judged{'' if not tally.checked else ' wholly'}: "
        f"{tally.unjudged or 'there was no case of it'}."
        for tally in verdict.tallies
        if tally.unjudged or not (tally.checked or tally.violated)
    ]


def _with_timeline(verdict: RunVerdict, conductor: Conductor, wrong: list[tuple[str, str]]) -> RunVerdict:
    """Add the timeline of the first job with wrong steps, unless another timeline is shown."""
    if verdict.timeline or not wrong:
        return verdict
    timeline = timeline_of(conductor.history, *wrong[0])
    return msgspec.structs.replace(verdict, timeline=timeline)


def _undrained(conductor: Conductor) -> list[str]:
    if conductor.is_drained:
        return []
    left, unit = conductor.progress.left, conductor.progress.unit
    return [f"drain: {left} {unit} had not ended, and for {conductor.plan.drain:g} s after the faults none of them did"]


def _recoveries(times: list[float]) -> dict[str, float]:
    if not times:
        return {"count": 0}
    return {"count": len(times), "median": times[len(times) // 2], "most": times[-1]}


def _versions(conductor: Conductor) -> dict[str, str]:
    found = {"holdfast": version("holdfast"), "python": platform.python_version()}
    return {**found, **conductor.target.versions()}


def _machine() -> dict[str, str]:
    return {"system": platform.platform(), "processors": str(os.cpu_count()), "architecture": platform.machine()}
