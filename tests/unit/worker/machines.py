"""Machines for tests: fresh, and with jobs at hand."""

from __future__ import annotations

from tests.unit.worker.driver import leased

from holdfast.model.job import LeasedJob
from holdfast.store.values import Verdict
from holdfast.worker.machine import Machine
from holdfast.worker.settings import WorkerConfig

DONE, LOST = Verdict.DONE, Verdict.LOST


def machine(**settings) -> Machine:
    return Machine(WorkerConfig(**settings))


def with_jobs(count: int, **settings) -> Machine:
    """A machine to which a claim has just brought jobs 1 to `count`, at time 0; no maintenance is in the way."""
    m = machine(**settings)
    asked = m.decide(0.0).claim
    m.claimed(0.0, [leased(seq) for seq in range(1, count + 1)], asked=asked, sent_at=0.0)
    return m


def begin(m: Machine) -> LeasedJob:
    job = m.take()
    assert job is not None
    return job
