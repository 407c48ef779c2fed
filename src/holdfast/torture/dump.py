"""The final dump: every job, every effect and all leftovers of the run, written to the history; and a few figures."""

from __future__ import annotations

from array import array
from collections import Counter

import msgspec

from holdfast.torture.events import Dumped, DumpedJob
from holdfast.torture.history import now_us
from holdfast.torture.log import Log
from holdfast.torture.target import Target

_SHARES = {"50 %": 0.5, "90 %": 0.9, "99 %": 0.99, "99.9 %": 0.999}


class Figures(msgspec.Struct, kw_only=True):
    """Figures from the final state of the store.

    Latency is from enqueue to completion, in seconds, of undelayed jobs that completed on the first attempt;
    `latency_all` is that of all completed jobs.
    """

    states: dict[str, int] = {}
    effects: int = 0
    attempts: dict[str, int] = {}
    most_attempts: int = 0
    latency: dict[str, float] = {}
    latency_all: dict[str, float] = {}
    wrong_steps: list[tuple[str, str]] = []


def dump(target: Target, log: Log, *, processes: int) -> Figures:
    """Read the store; `processes` is the number of processes of the run that are still there."""
    states: Counter[str] = Counter()
    outcomes: Counter[str] = Counter()
    quick, all_of_them = array("q"), array("q")
    most = 0
    for row in target.jobs.rows():
        log.writer.write(row)
        states[row.state] += 1
        outcomes.update(attempt.outcome for attempt in row.attempts)
        most = max(most, row.attempt)
        if row.state == "completed":
            took = row.finished_us - row.enqueued_us
            all_of_them.append(took)
            if _is_plain(row):
                quick.append(took)
    effects = 0
    for effect in target.jobs.effects():
        log.writer.write(effect)
        effects += 1
    wrong = target.jobs.wrong_steps()
    left = target.leftovers()
    log.writer.write(
        Dumped(
            at_us=now_us(),
            rows=sum(states.values()),
            effects=effects,
            leases=left.leases,
            transactions=left.transactions,
            connections=left.connections,
            processes=processes,
            integrity=left.integrity,
        )
    )
    return Figures(
        states=dict(states),
        effects=effects,
        attempts=dict(outcomes),
        most_attempts=most,
        latency=_percentiles(quick),
        latency_all=_percentiles(all_of_them),
        wrong_steps=wrong,
    )


def _is_plain(row: DumpedJob) -> bool:
    return row.attempt == 1 and row.run_us <= row.enqueued_us


def _percentiles(spans: array[int]) -> dict[str, float]:
    if not spans:
        return {}
    ordered = sorted(spans)
    last = len(ordered) - 1
    found = {name: ordered[round(share * last)] / 1e6 for name, share in _SHARES.items()}
    return {**found, "most": ordered[-1] / 1e6}
