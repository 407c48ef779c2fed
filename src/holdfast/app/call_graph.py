"""Graphs of calls: `chain` and `group`, enqueued as jobs in one call.

`task.call(1)` is a call that is not made: neither is the function called, as `task(1)` does, nor is a job enqueued.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from holdfast.app.job_handle import JobHandle, handle_of
from holdfast.app.sync import Blocking, Sync
from holdfast.errors import ConfigError, OutcomeUnknown
from holdfast.jobs.enqueue import TaskCall, new_job, unknown_enqueue
from holdfast.model.conditions import Conditions
from holdfast.model.job import NewJob

if TYPE_CHECKING:
    from holdfast.app.app import App


class CallGraph:
    """Calls of which some wait for others; made by `chain` and `group`, which can be nested."""

    def __init__(self, calls: Sequence[TaskCall[Any, Any]], parents: Sequence[Sequence[int]]) -> None:
        self.calls = calls
        self.parents = parents
        """For each call, the places of those for whose end it waits."""

    def __len__(self) -> int:
        """Return the number of calls."""
        return len(self.calls)

    def __repr__(self) -> str:
        """Show the tasks, never the arguments."""
        return f"<graph of {len(self.calls)} calls>"

    @property
    def first(self) -> list[int]:
        """The places of the calls that wait for none of the graph."""
        return [place for place, parents in enumerate(self.parents) if not parents]

    @property
    def last(self) -> list[int]:
        """The places of the calls for which none of the graph waits."""
        waited_for = {parent for parents in self.parents for parent in parents}
        return [place for place in range(len(self.calls)) if place not in waited_for]

    @property
    def app(self) -> App:
        """The app of its tasks; raises `ConfigError` if there is none, or more than one."""
        apps = {id(call.origin[0]): call.origin[0] for call in self.calls}
        if len(apps) != 1:
            remedy = "pass some, as in chain(resize.call(3), publish.call(3))"
            raise ConfigError(f"a graph needs calls of the tasks of one app, not of {len(apps)}: {remedy}")
        (app,) = apps.values()
        found: App = app
        return found

    @property
    def sync(self) -> SyncCallGraph:
        """The same with blocking calls."""
        return SyncCallGraph(self, self.app.portal)

    async def enqueue(self, *, using: object = None) -> list[JobHandle[Any]]:
        """Make a job of each call, all or none; return their handles in the order in which the calls were given.

        `using` is the caller's connection, whose open transaction the enqueue joins.
        """
        app = self.app
        jobs = [_job_of(call) for call in self.calls]
        jobs = [
            _after(job, [jobs[parent].id for parent in parents])
            for job, parents in zip(jobs, self.parents, strict=True)
        ]
        try:
            answers = await app.enqueue_new(jobs, using=using)
        except OutcomeUnknown as error:
            raise unknown_enqueue(error, jobs) from error
        return [
            handle_of(app, job.id, answer, call.origin[1].returns)
            for job, answer, call in zip(jobs, answers, self.calls, strict=True)
        ]


def _job_of(call: TaskCall[Any, Any]) -> NewJob:
    template = call.origin[2]
    if template.using is not None:
        raise ConfigError(f"a call of {template.task!r} has using=…: pass it to the whole graph, as enqueue(using=…)")
    if template.patience is not None:
        raise ConfigError(f"a call of {template.task!r} has patience=…: only a single enqueue or enqueue_many takes it")
    return new_job(template, call.args, call.kwargs)


def _after(job: NewJob, parents: Sequence[str]) -> NewJob:
    if not parents:
        return job
    known = job.conditions or Conditions()
    return msgspec.structs.replace(job, conditions=msgspec.structs.replace(known, after=(*known.after, *parents)))


class SyncCallGraph(Sync[CallGraph]):
    """`graph.sync`."""

    enqueue = Blocking(CallGraph.enqueue)


Step = TaskCall[Any, Any] | CallGraph


def chain(*steps: Step) -> CallGraph:
    """Return the graph in which each step waits for the one before; a step is a call, or a graph.

    `chain(group(a.call(1), a.call(2)), b.call())`: `b` waits for both.
    """
    return _joined("chain", steps, in_order=True)


def group(*steps: Step) -> CallGraph:
    """Return the graph of steps that do not wait for each other; a step is a call, or a graph."""
    return _joined("group", steps, in_order=False)


def _joined(name: str, steps: Sequence[Step], *, in_order: bool) -> CallGraph:
    calls: list[TaskCall[Any, Any]] = []
    parents: list[list[int]] = []
    before: list[int] = []
    for step in steps:
        graph = _graph_of(name, step)
        offset = len(calls)
        calls += graph.calls
        parents += [[offset + parent for parent in given] for given in graph.parents]
        if in_order:
            for place in graph.first:
                parents[offset + place] = list(before)
            before = [offset + place for place in graph.last] or before
    return CallGraph(calls, parents)


def _graph_of(name: str, step: object) -> CallGraph:
    if isinstance(step, CallGraph):
        return step
    if isinstance(step, TaskCall):
        calls: list[Any] = [step]
        return CallGraph(calls, [[]])
    raise ConfigError(
        f"{name}(…) got {type(step).__name__}: pass calls that are not yet made, as in {name}(resize.call(3), "
        "publish.call(3)); resize(3) calls the function itself, resize.enqueue(3) enqueues a job"
    )
