"""A store in which every feature of jobs is in use, to see what jobs pay that use none of them."""

from __future__ import annotations

from datetime import timedelta

from holdfast.model.limits import Limit, LimitKey
from holdfast.model.schedule import recurrence
from holdfast.model.schedule_definition import ScheduleDefinition
from holdfast.store.backend import Backend
from holdfast.testing.conformance.base import a_job, claim, enqueue
from holdfast.testing.conformance.order_keys import keyed
from holdfast.testing.conformance.parents import after
from holdfast.testing.conformance.unique import unique


async def use_every_feature(backend: Backend) -> None:
    """Leave jobs that wait for a limit, a limit key, an order key and parents, a unique job and a schedule.

    All jobs but those with a limit key are of the task `greet`. Limited are the queue `mail` and the task `other`.
    """
    await backend.queues.limit(LimitKey("queue", "mail"), Limit(running=1, rate="10/s"))
    await backend.queues.limit(LimitKey("task", "other"), Limit(running=1))
    await backend.queues.limit(LimitKey("key", "each"), Limit(running=1))
    await enqueue(backend, a_job("mail"), a_job("mail"), *(a_job(task="other") for _ in range(2)))
    await enqueue(backend, *(a_job(task="each", limit_key="customer-3") for _ in range(3)))
    (parent,) = await enqueue(backend, a_job(delay=timedelta(hours=1)))
    await enqueue(backend, unique(), keyed(), keyed(), after(parent), after(parent, order_key="x"))
    await backend.schedules.put("often", ScheduleDefinition(recurrence(every=timedelta(minutes=1)), "greet"))
    assert len(await claim(backend, tasks=["greet", "other", "each"])) == 5
