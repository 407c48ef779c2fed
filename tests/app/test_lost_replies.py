"""Enqueues and appends whose reply was lost."""

from __future__ import annotations

import msgspec
import pytest

from holdfast import App, OutcomeUnknown, StoreUnavailable


class Failing:
    """A verb that is carried out and then fails as told, one error per call, until none is left."""

    def __init__(self, real, *errors: Exception | None, first: bool = True) -> None:
        self._real = real
        self._errors = list(errors)
        self.does = first

    async def __call__(self, *args, **words):
        error = self._errors.pop(0) if self._errors else None
        done = await self._real(*args, **words) if self.does or error is None else None
        if error is not None:
            raise error
        return done


LOST = OutcomeUnknown("the connection broke")


@pytest.fixture
async def app(file_app: App, monkeypatch):
    """An app over a store whose repeats tell, as those of a server do."""
    backend = await file_app.opened()
    capabilities = msgspec.structs.replace(backend.capabilities, repeat_shows_outcome=True)
    monkeypatch.setattr(type(backend), "capabilities", capabilities)
    return file_app


async def test_where_a_repeat_tells_nothing_the_first_answer_stands(file_app: App, monkeypatch):
    @file_app.task
    async def charge(order_id: int) -> None: ...

    jobs = (await file_app.opened()).jobs
    monkeypatch.setattr(jobs, "enqueue", Failing(jobs.enqueue, LOST))
    with pytest.raises(OutcomeUnknown):
        await charge.enqueue(order_id=7)


@pytest.mark.parametrize("does", [True, False])
async def test_an_enqueue_whose_reply_was_lost_is_asked_for_again_and_made_once(app: App, monkeypatch, does):
    @app.task
    async def charge(order_id: int) -> None: ...

    jobs = (await app.opened()).jobs
    monkeypatch.setattr(jobs, "enqueue", Failing(jobs.enqueue, LOST, first=does))
    job = await charge.enqueue(order_id=7)
    page = await app.jobs.list("ready")
    assert [view.id for view in page.jobs] == [job.id]
    assert job.created is not does


async def test_an_enqueue_that_is_still_unknown_says_so_whatever_the_second_try_said(app: App, monkeypatch):
    @app.task
    async def charge(order_id: int) -> None: ...

    jobs = (await app.opened()).jobs
    monkeypatch.setattr(jobs, "enqueue", Failing(jobs.enqueue, LOST, StoreUnavailable("gone"), first=False))
    with pytest.raises(OutcomeUnknown):
        await charge.enqueue(order_id=7)


@pytest.mark.parametrize("does", [True, False])
async def test_an_append_whose_reply_was_lost_is_asked_for_again_and_made_once(app: App, monkeypatch, does):
    events = (await app.opened()).streams.events
    await app.category("orders", partitions=1)
    monkeypatch.setattr(events, "append", Failing(events.append, LOST, first=does))
    place = await app.append("orders", stream="a", name="placed", expected_version=0)
    assert (place.version, len(await app.read("orders"))) == (1, 1)
