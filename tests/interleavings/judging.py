"""Which outcomes are right: those that some order of whole operations has on the reference model."""

from __future__ import annotations

import copy
from collections.abc import AsyncIterator, Generator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from datetime import timedelta
from itertools import permutations, product
from typing import Any

from tests.interleavings.operations import SCHEDULE, Instant, Leases, Operation, World
from tests.interleavings.setups import LIMITED, LIMITS, SETUPS, set_up_schedules
from tests.interleavings.tables import COUNTS

from holdfast.model.job import JobState, Lease, parents_of
from holdfast.model.outcome import Completed
from holdfast.model.schedule_definition import encode_definition
from holdfast.store.jobs import JobStore
from holdfast.store.schedules import ScheduleStore
from holdfast.store.values import Extension, Finish, Verdict
from holdfast.testing.reference import Reference
from holdfast.testing.reference.backend import ReferenceJobs
from holdfast.testing.reference.records import ReferenceJob
from holdfast.testing.reference.schedules import ReferenceSchedule, ReferenceSchedules

Outcomes = list[tuple[tuple[Any, ...], dict[str, Any]]]


class ReferenceVerbs:
    """What the operations call, on the model."""

    def __init__(self, model: Reference, schedules: ReferenceSchedules) -> None:
        self.model = model
        self.jobs: JobStore = ReferenceJobs(model)
        self.schedules: ScheduleStore = schedules

    async def extend_many(self, held: Sequence[Lease], duration: timedelta) -> Extension:
        return self.model.extend_all(held, duration)

    async def complete_inside(self, lease: Lease) -> Verdict:
        if self.model.of_lease(lease) is None:
            return Verdict.LOST
        return self.model.finish([Finish(lease, Completed())])[0]

    async def batch_inside(self, finishes: Sequence[Finish]) -> dict[str, Verdict]:
        held = [finish for finish in finishes if self.model.of_lease(finish.lease) is not None]
        return {finish.lease.job_id: self.model.finish([finish])[0] for finish in held}

    @asynccontextmanager
    async def together(self) -> AsyncIterator[None]:
        yield


@dataclass
class Judge:
    """Knows the right outcomes in one state."""

    model: Reference
    schedules: ReferenceSchedules
    leases: Leases

    @classmethod
    async def of(cls, state: str) -> Judge:
        """Bring the model into a state."""
        clock = Instant()
        model = Reference(clock)
        model.settles_at_once = False  # a transaction of the store by itself, which is a step by itself here
        for key in LIMITED:
            model.limit(key, LIMITS.get(state, {}).get(key))
        schedules = ReferenceSchedules(model)
        await set_up_schedules(state, schedules)
        return cls(model, schedules, await SETUPS[state](ReferenceJobs(model), clock))

    async def allowed(self, operations: Sequence[Operation | None], may_skip: Sequence[bool]) -> Outcomes:
        """Return the results and states of all serial orders; None stands for an operation that was rolled back.

        An operation that met rows held by another may do as if the jobs were not there: all of them, or any one.
        One that rescues may meet them again, free by then, when it says of the rest that it was not alone.
        """
        there = [number for number, operation in enumerate(operations) if operation is not None]
        sights: list[list[frozenset[str]]] = [[frozenset()] for _ in operations]
        for number in there:
            operation = operations[number]
            if operation is not None and operation.skips and may_skip[number]:
                ids = list(self.model.records)
                sights[number] += [frozenset(ids), *(frozenset({job_id}) for job_id in ids)]
            if operation is not None and operation.may_miss_children:
                children = [job_id for job_id, record in self.model.records.items() if parents_of(record.new)]
                sights[number] += [frozenset({job_id}) for job_id in children]
            if operation is not None and operation.may_miss_schedules:
                sights[number].append(frozenset({SCHEDULE}))
        outcomes: Outcomes = []
        for order in permutations(there):
            for unseen in product(*sights):
                for parts in (False, True) if any(unseen) else (False,):
                    outcome = await self._serial(operations, order, unseen, parts=parts)
                    if outcome not in outcomes:
                        outcomes.append(outcome)
        return outcomes

    async def _serial(
        self,
        operations: Sequence[Operation | None],
        order: Sequence[int],
        unseen: Sequence[frozenset[str]],
        *,
        parts: bool,
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        model, schedules = copy.deepcopy((self.model, self.schedules))
        results: list[Any] = [None] * len(operations)
        for number in order:
            operation = operations[number]
            assert operation is not None
            world = World(ReferenceVerbs(model, schedules), self.leases, f"side-{number}")
            if SCHEDULE in unseen[number]:
                results[number] = 0
                continue
            if operation.name == "extend many" and unseen[number]:
                lost, asked, _ = await operation(
                    World(ReferenceVerbs(copy.deepcopy(model), schedules), self.leases, "")
                )
                results[number] = (lost, asked, [] if lost else [self.leases["holder"].job_id])
                continue
            hidden = {job_id: model.records.pop(job_id) for job_id in unseen[number] if job_id in model.records}
            with _beside(model, list(hidden.values()), parts=parts):
                results[number] = await operation(world)
            model.records.update(hidden)
        return tuple(results), observed(model, schedules)


@contextmanager
def _beside(model: Reference, hidden: Sequence[ReferenceJob], *, parts: bool) -> Generator[None]:
    """Let the jobs of a worker not be alone while another of its jobs is passed over: it is still held."""
    passed_over = [record.lease for record in hidden if record.lease is not None]
    workers = {hold.worker_id for hold in passed_over}
    holds = [hold for _, hold in model.held() if hold.isolated and hold.worker_id in workers]
    number = len(model.held())
    for hold in holds:
        hold.isolated = False
    yield
    if len(model.held()) == number:  # nothing was taken, so nothing is said of the rest
        for hold in holds:
            hold.isolated = True
    elif parts:
        for hold in passed_over:
            hold.isolated = False


def observed(model: Reference, schedules: ReferenceSchedules) -> dict[str, Any]:
    """Return what can be told of the model, as `tables.observed` does of the store."""
    counted = {name: sum(counter[name] for counter in model.counts.values()) for name in COUNTS}
    blocked = [
        record
        for record in model.records.values()
        if record.state is JobState.BLOCKED and (record.limit_scope is None or record.waits)
    ]
    waiting = [record.new.id for record in sorted(blocked, key=lambda record: record.place)]
    jobs = {job_id: _job(record) for job_id, record in model.records.items()}
    keys = {(name[1], key.job_id) for name, key in model.unique_keys.items() if key.job_id in jobs}
    rows = {name: _schedule(known) for name, known in schedules.known.items()}
    return {"jobs": jobs, "counts": counted, "waiting": waiting, "unique": keys, "schedules": rows}


def _schedule(known: ReferenceSchedule) -> tuple[Any, ...]:
    definition = encode_definition(known.definition)
    return definition, known.owner, known.declared_us, known.paused, known.next_us, known.last_us


def _job(record: ReferenceJob) -> dict[str, Any]:
    counters = record.counters
    seen: dict[str, Any] = {
        "state": record.state.value,
        "turn": record.turn_us,
        "payload": record.new.payload,
        "attempt": counters.attempt,
        "attempts": sorted((view.attempt, view.worker_id, view.outcome) for view in record.attempts),
    }
    if not record.is_final:
        seen |= {"excused": counters.excused, "interrupted": counters.interrupted, "lost": counters.lost}
    if record.state is JobState.SCHEDULED:
        seen["retrying"] = record.retrying
    elif record.state is JobState.COMPLETED:
        seen["result"] = record.result
    elif record.is_final:
        seen["lost"] = counters.lost
    if record.lease is not None:
        seen |= {
            "worker_id": record.lease.worker_id,
            "lease_until": record.lease.expires_us,
            "lease_span": record.lease.duration_us,
            "isolated": record.lease.isolated,
            "cancel_reason": record.cancel_reason,
        }
    return seen
