"""Every way to enqueue: single, many at once, in a transaction of the caller, and again after a lost reply."""

from __future__ import annotations

import asyncio
import itertools
import os
import random
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec

from holdfast.app.tasks import TaskHandle
from holdfast.errors import OutcomeUnknown, StoreUnavailable
from holdfast.jobs.enqueue import job_template, new_jobs
from holdfast.model.conditions import Conditions
from holdfast.model.ids import new_id
from holdfast.model.instants import to_micros
from holdfast.model.job import NewJob
from holdfast.torture.events import EnqueueAnswered, EnqueueCalled, EnqueueRefused, EnqueueUnknown
from holdfast.torture.history import now_us
from holdfast.torture.recorder import recorder
from holdfast.torture.work.app import app, lease
from holdfast.torture.work.attempt import taken
from holdfast.torture.work.base import Order, Work
from holdfast.torture.work.connecting import connected

_BY_LIBRARY, _WITH_OWN_IDS, _COMMITTED, _ROLLED_BACK = range(4)
_WAYS = (_BY_LIBRARY, _WITH_OWN_IDS, _COMMITTED, _ROLLED_BACK)
_WEIGHTS = (50, 35, 8, 7)
_ALONE = (50, 35, 0, 0)  # without transactions of callers
_GIVE_UP = 0.2  # of the calls with a lost reply are not repeated
_PAUSE = 0.3  # seconds before a repeat
_REPEATS = 200
_DELAYED = _FAVOURED = 0.1
_MOST_DELAY = 2.0  # seconds
_MORE_ATTEMPTS = _TIMED = 0.05
_MOST_MORE = 3
_LONG = 30.0  # leases: a timeout that hardly any handler reaches
_BLOCKING = 0.2  # of the single ones are enqueued in a thread
_AT_AN_INSTANT = 0.3  # of the delayed ones have a run_at
Jobs = Sequence[tuple[str, bool]]


class Enqueuer:
    """Enqueues drawn jobs and records each call."""

    def __init__(self, name: str, chance: random.Random, luck: random.Random) -> None:
        """`chance` draws what is enqueued, `luck` the reaction to errors: what is drawn must not depend on errors."""
        self._name = f"{name}-{os.getpid()}"
        self._chance = chance
        self._luck = luck
        self._numbers = itertools.count(1)
        self.enqueued = 0
        self.calls = 0

    async def one(self, work: Work) -> list[str]:
        """Enqueue one job under an id of the caller; repeat it after a lost reply."""
        order, options = self._draw(work, 1)
        job_id = new_id()
        handle = order.task.options(**options, job_id=job_id)
        is_blocking = self._chance.random() < _BLOCKING

        async def call(_: str) -> Jobs:
            if is_blocking:
                job = await asyncio.to_thread(handle.sync.enqueue, **order.calls[0])
            else:
                job = await handle.enqueue(**order.calls[0])
            return [(job.id, job.created)]

        return await self._persist(work, order, options, call, ids=[job_id])

    async def many(self, work: Work, count: int) -> list[str]:
        """Enqueue several jobs at once, in one of several ways."""
        order, options = self._draw(work, count)
        (way,) = self._chance.choices(_WAYS, _WEIGHTS if app.backend.capabilities.joins_transactions else _ALONE)
        if way == _BY_LIBRARY:
            return await self._with_library_ids(work, order, options)
        if way == _WITH_OWN_IDS:
            return await self._with_own_ids(work, order, options)
        return await self._using(work, order, options, commits=way == _COMMITTED)

    def _draw(self, work: Work, count: int) -> tuple[Order, dict[str, Any]]:
        order = work.draw(self._chance, count)
        options = dict(order.options)
        if work.in_turn:
            return order, options
        if "delay" not in options and self._chance.random() < _DELAYED:
            seconds = round(_MOST_DELAY * self._chance.random(), 3)
            if self._chance.random() < _AT_AN_INSTANT:
                options["run_at"] = datetime.now(UTC) + timedelta(seconds=seconds)
            else:
                options["delay"] = seconds
        if self._chance.random() < _FAVOURED:
            options["priority"] = self._chance.randint(-3, 3)
        if self._chance.random() < _MORE_ATTEMPTS:
            options["max_attempts"] = order.task.task.max_attempts + self._chance.randint(1, _MOST_MORE)
        if self._chance.random() < _TIMED:
            options["timeout"] = order.task.task.timeout or _LONG * lease
        return order, options

    async def _with_library_ids(self, work: Work, order: Order, options: dict[str, Any]) -> list[str]:
        """Let the library generate the ids: an unknown outcome stays unknown; the header identifies the jobs later."""

        async def call(name: str) -> Jobs:
            handle = order.task.options(**options, headers={"call": name})
            return [(job.id, job.created) for job in await handle.enqueue_many(order.calls)]

        return await self._persist(work, order, options, call, ids=[])

    async def _with_own_ids(self, work: Work, order: Order, options: dict[str, Any]) -> list[str]:
        """Create the jobs here, so that exactly the same ones can be sent again."""
        jobs = _chained(new_jobs(job_template(order.task.task, **options), order.calls), work.chain)

        async def call(_: str) -> Jobs:
            answers = await app.enqueue_new(jobs)
            return [(job.id, answer is True) for job, answer in zip(jobs, answers, strict=True)]

        return await self._persist(work, order, options, call, ids=[job.id for job in jobs])

    async def _using(self, work: Work, order: Order, options: dict[str, Any], *, commits: bool) -> list[str]:
        """Join a transaction of the caller, and commit it or roll it back."""
        jobs = _chained(new_jobs(job_template(order.task.task, **options), order.calls), work.chain)
        ids = tuple(job.id for job in jobs)
        name = self._called(work, order.task, options, ids=ids, size=len(ids), using=True)
        try:
            with connected() as connection:
                answers = await app.enqueue_new(jobs, using=connection.raw)
                if not commits:
                    connection.rollback()
                    recorder.write(EnqueueRefused(at_us=now_us(), call=name, jobs=ids, error="rolled back"))
                    return []
                try:
                    connection.commit()
                except OutcomeUnknown as error:
                    recorder.write(EnqueueUnknown(at_us=now_us(), call=name, jobs=ids, error=str(error)))
                    return []
        except (StoreUnavailable, OutcomeUnknown) as error:  # before the commit: it is rolled back
            recorder.write(EnqueueRefused(at_us=now_us(), call=name, jobs=ids, error=type(error).__name__))
            return []
        return self._answered(name, [(job_id, answer is True) for job_id, answer in zip(ids, answers, strict=True)])

    async def _persist(
        self,
        work: Work,
        order: Order,
        options: Mapping[str, Any],
        call: Callable[[str], Awaitable[Jobs]],
        *,
        ids: list[str],
    ) -> list[str]:
        """Call, and repeat while the store is unavailable, or the reply was lost and the ids are the caller's."""
        for _ in range(_REPEATS):
            name = self._called(work, order.task, options, ids=tuple(ids), size=len(order.calls))
            try:
                return self._answered(name, await call(name))
            except StoreUnavailable as error:
                what = type(error).__name__
                recorder.write(EnqueueRefused(at_us=now_us(), call=name, jobs=tuple(ids), error=what))
            except OutcomeUnknown as error:
                what = type(error).__name__
                recorder.write(EnqueueUnknown(at_us=now_us(), call=name, jobs=tuple(ids), error=what))
                if not ids or self._luck.random() < _GIVE_UP:
                    return []
            await asyncio.sleep(_PAUSE * self._luck.random())  # jitter
        return []

    def _called(
        self,
        work: Work,
        task: TaskHandle[..., Any],
        options: Mapping[str, Any],
        *,
        ids: tuple[str, ...],
        size: int,
        using: bool = False,
    ) -> str:
        name = f"{self._name}-{next(self._numbers)}"
        run_at = options.get("run_at")
        self.calls += 1
        recorder.write(
            EnqueueCalled(
                at_us=now_us(),
                call=name,
                jobs=ids,
                size=size,
                task=task.name,
                queue=_ordering_scope(task, options),
                takes=taken(work.takes),
                max_attempts=int(options.get("max_attempts", task.task.max_attempts)),
                priority=int(options.get("priority", task.task.priority)),
                delay_us=round(float(options.get("delay", 0.0)) * 1_000_000),
                run_us=None if run_at is None else to_micros(run_at),
                using=using,
                unique_key=str(options.get("unique_key", "")),
                after=tuple(options.get("after", ())),
                run_anyway=bool(options.get("run_anyway", False)),
                chain=work.chain if len(ids) > 1 else 0,
                max_running=_max_running(task, options),
                limit_key=str(options.get("limit_key", "")),
            )
        )
        return name

    def _answered(self, name: str, jobs: Jobs) -> list[str]:
        ids = tuple(job for job, _ in jobs)
        new = tuple(created for _, created in jobs)
        recorder.write(EnqueueAnswered(at_us=now_us(), call=name, jobs=ids, new=() if all(new) else new))
        self.enqueued += len(ids)
        return list(ids)


def _chained(jobs: Sequence[NewJob], length: int) -> list[NewJob]:
    """Let jobs wait for each other in chains of this length; 0 for none."""
    linked = list(jobs)
    for number in range(1, len(linked) if length else 0):
        if number % length:
            job, before = linked[number], linked[number - 1]
            conditions = job.conditions or Conditions()
            conditions = msgspec.structs.replace(conditions, after=(*conditions.after, before.id))
            linked[number] = msgspec.structs.replace(job, conditions=conditions)
    return linked


def _max_running(task: TaskHandle[..., Any], options: Mapping[str, Any]) -> int:
    """Return the limit of a task or, for a job with a limit key, that of its key."""
    limit = task.task.key_limit if "limit_key" in options else task.task.limit
    return 0 if limit is None else limit.running or 0


def _ordering_scope(task: TaskHandle[..., Any], options: Mapping[str, Any]) -> str:
    """Return the queue or, with an order key, queue and key: the scope within which jobs are ordered."""
    queue, key = str(options.get("queue", task.task.queue)), options.get("order_key")
    return queue if key is None else f"{queue}/{key}"
