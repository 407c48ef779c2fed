"""An enqueue or a copy of which nobody knows whether it was done can be repeated under the same ids."""

from __future__ import annotations

import asyncio
import pickle
from typing import Any
from uuid import UUID, uuid4

import pytest
from tests.app.test_lost_replies import LOST, Failing
from tests.app.work import total

from holdfast import App, ConfigError, OutcomeUnknown
from holdfast.model.ids import new_id


@pytest.fixture
def charge(app: App):
    @app.task
    async def charge(order_id: int) -> None: ...

    return charge


@pytest.fixture
async def jobs(app: App):
    return (await app.opened()).jobs


@pytest.mark.parametrize("does", [True, False])
async def test_many_jobs_whose_reply_was_lost_are_enqueued_once_when_repeated_with_the_ids_of_the_error(
    app, charge, jobs, monkeypatch, does
):
    calls = [{"order_id": n} for n in range(3)]
    monkeypatch.setattr(jobs, "enqueue", Failing(jobs.enqueue, LOST, first=does))
    with pytest.raises(OutcomeUnknown, match=r"3 jobs may have been enqueued, all or none: .*job_ids") as unknown:
        await charge.enqueue_many(calls)

    made = await charge.enqueue_many(calls, job_ids=unknown.value.job_ids)

    assert tuple(job.id for job in made) == unknown.value.job_ids
    assert [job.created for job in made] == [not does] * 3
    assert await total(app) == 3
    assert (await made[2].details()).payload == '[[],{"order_id":2}]'


async def test_one_job_whose_reply_was_lost_is_enqueued_once_when_repeated_with_the_id_of_the_error(
    app, charge, jobs, monkeypatch
):
    monkeypatch.setattr(jobs, "enqueue", Failing(jobs.enqueue, LOST))
    with pytest.raises(OutcomeUnknown) as unknown:
        await charge.enqueue(order_id=7)

    (job_id,) = unknown.value.job_ids
    job = await charge.options(job_id=job_id).enqueue(order_id=7)

    assert f"job {job_id} may have been enqueued" in str(unknown.value)
    assert str(LOST) in str(unknown.value)
    assert (job.id, job.created, await total(app)) == (job_id, False, 1)


@pytest.mark.parametrize("does", [True, False])
async def test_a_copy_whose_reply_was_lost_is_made_once_when_repeated_with_the_id_of_the_error(
    app, charge, jobs, monkeypatch, does
):
    original = await charge.enqueue(order_id=7)
    monkeypatch.setattr(jobs, "enqueue", Failing(jobs.enqueue, LOST, first=does))
    with pytest.raises(OutcomeUnknown) as unknown:
        await app.jobs.copy(original.id)

    (copy_id,) = unknown.value.job_ids
    assert await app.jobs.copy(original.id, copy_id=UUID(copy_id)) == copy_id
    assert await app.jobs.copy(original.id, copy_id=copy_id.upper()) == copy_id

    assert copy_id != original.id
    assert await total(app) == 2


async def test_enqueues_that_went_to_the_store_together_are_each_told_their_own_ids(app, charge, jobs, monkeypatch):
    monkeypatch.setattr(jobs, "enqueue", Failing(jobs.enqueue, None, LOST))
    ids = [new_id() for _ in range(4)]

    answers: list[Any] = await asyncio.gather(
        *[charge.options(job_id=job_id).enqueue(order_id=n) for n, job_id in enumerate(ids)], return_exceptions=True
    )

    assert answers[0].id == ids[0]
    assert [error.job_ids for error in answers[1:]] == [(job_id,) for job_id in ids[1:]]


async def test_where_no_enqueue_is_unknown_the_error_has_no_ids():
    assert OutcomeUnknown("the disk failed").job_ids == ()


async def test_the_ids_travel_with_the_error_between_processes():
    error = pickle.loads(pickle.dumps(OutcomeUnknown("x", job_ids=("a", "b"))))  # noqa: S301 - our own
    assert (str(error), error.job_ids) == ("x", ("a", "b"))


async def test_ids_of_the_callers_own_are_given_to_the_calls_in_their_order(app, charge):
    ids = [uuid4(), str(uuid4()).upper(), uuid4()]

    made = await charge.enqueue_many(iter([{"order_id": n} for n in range(3)]), job_ids=iter(ids))

    assert [job.id for job in made] == [str(job_id).lower() for job_id in ids]
    assert await charge.enqueue_many([], job_ids=[]) == []


@pytest.mark.parametrize(
    ("ids", "remedy"),
    [
        ([], "job_ids has 0 ids for 2 calls: pass one for each"),
        ([new_id()], "job_ids has 1 id for 2 calls: pass one for each"),
        ([new_id() for _ in range(3)], "job_ids has 3 ids for 2 calls: pass one for each"),
        ([new_id(), "order-7"], "job_ids, item 1: job id 'order-7' is not a UUID: pass one like"),
        ([new_id(), None], "job_ids, item 1: .* is not a UUID"),
        (["0190a8c0-0000-7000-8000-00000000000A", "0190a8c0-0000-7000-8000-00000000000a"], "items 0 and 1 .* the same"),
        ("0190a8c0-0000-7000-8000-00000000000a", "job_ids=.* is a string: pass a list"),
        (7, "job_ids=7 is not a list"),
    ],
)
async def test_ids_that_cannot_be_those_of_the_calls_are_refused_with_the_remedy(app, charge, ids, remedy):
    with pytest.raises(ConfigError, match=remedy):
        await charge.enqueue_many([{"order_id": 1}, {"order_id": 2}], job_ids=ids)

    assert await total(app) == 0


async def test_an_id_that_no_copy_can_have_is_refused(app, charge):
    original = await charge.enqueue(order_id=7)

    with pytest.raises(ConfigError, match="is not a UUID"):
        await app.jobs.copy(original.id, copy_id="order-7")
    with pytest.raises(ConfigError, match="is the id of the original: pass another, or leave it out"):
        await app.jobs.copy(original.id, copy_id=original.id.upper())

    assert await total(app) == 1
