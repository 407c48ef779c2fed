"""Graphs of jobs, done by processes that are killed, stopped and shut down: no child before its parents, none lost."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import NamedTuple

import pytest
from tests.system.fleet import PATIENT, Fleet

from holdfast.model.job import JobState

PROCESSES = 3
GRAPHS = 12


class Graph(NamedTuple):
    """The parents of each job. Those in `broken` fail, or descend from one that fails."""

    parents: dict[str, list[str]]
    broken: set[str]


def chain_and_fan(ledger, chance) -> Graph:
    """A chain of two, a fan-out, a fan-in, and beside it a parent that fails, with a chain of two after it."""
    parents: dict[str, list[str]] = {}

    def enqueue(task: str, *after: str, **options: object) -> str:
        job: str = ledger.enqueue(task, {"after": list(after), **options} if after else options)
        parents[job] = list(after)
        return job

    def pay(*after: str) -> str:
        return enqueue(chance.choice(["pay", "pay_in_thread"]), *after, **PATIENT)

    first = pay()
    second = pay(first)
    middle = [pay(second) for _ in range(4)]
    pay(*middle)
    failing = enqueue("fail")
    child = pay(failing, first)
    return Graph(parents, {failing, child, pay(child)})


@pytest.mark.slow
@pytest.mark.timeout(120)
def test_no_child_begins_before_its_parents_have_ended_whatever_happens_to_workers(ledger, workers):
    chance = random.Random(20261117)
    ledger.app.sync.opened()
    fleet = Fleet(workers, PROCESSES, seed=20261117)
    graphs = [chain_and_fan(ledger, chance) for _ in range(GRAPHS)]
    good = [job for graph in graphs for job in graph.parents if job not in graph.broken]
    fleet.disturb(lambda: len(ledger.store.effects()), len(good))
    ledger.completed(*good, within=60.0)
    fleet.resumed()
    for graph in graphs:
        check_graph(graph, {job: ledger.show(job) for job in graph.parents if ledger.ended(job, within=20.0)})
    fleet.shut_down()
    ledger.assert_once(good)
    assert {effect.job_id for effect in ledger.store.effects()} == set(good)


def check_graph(graph: Graph, jobs) -> None:
    """Every attempt began after the end of all parents, by the clock of the store; nothing after a failure began."""
    for job, parents in graph.parents.items():
        details = jobs[job]
        if job in graph.broken and parents:
            assert details.job.state is JobState.CANCELLED, details
            assert details.all_attempts == []
        for attempt in details.all_attempts:
            for parent in parents:
                assert jobs[parent].job.finished_at <= attempt.started_at, f"{job} began before the end of {parent}"


def test_a_child_that_begins_early_is_seen():
    at = datetime(2026, 11, 16, tzinfo=UTC)
    parent = SimpleNamespace(job=SimpleNamespace(finished_at=at + timedelta(seconds=1)), all_attempts=[])
    child = SimpleNamespace(all_attempts=[SimpleNamespace(started_at=at)])
    with pytest.raises(AssertionError, match="before the end of p"):
        check_graph(Graph({"p": [], "c": ["p"]}, set()), {"p": parent, "c": child})
