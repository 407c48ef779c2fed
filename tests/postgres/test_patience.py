"""An enqueue with patience goes through an outage of the server, exactly once."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator

import pytest
from tests.servers.postgres import OwnServer

from holdfast import App, ConfigError, OutcomeUnknown, StoreUnavailable, TaskHandle


@pytest.fixture
async def app(url: str) -> AsyncIterator[App]:
    async with App(url) as app:
        yield app


@pytest.fixture
async def stoppable(roomy_server: OwnServer) -> AsyncIterator[App]:
    app = App(roomy_server.url)
    await app.backend.schema.install()
    yield app
    await app.close()
    app.portal.close()


def _task(app: App) -> TaskHandle[[int], None]:
    @app.task
    def send(n: int) -> None: ...

    return send


@pytest.fixture
def send(app: App) -> TaskHandle[[int], None]:
    return _task(app)


async def _ready(app: App) -> list[str]:
    return [job.id for job in (await app.jobs.list("ready", limit=1000)).jobs]


@pytest.mark.slow
async def test_an_enqueue_goes_through_an_outage(stoppable: App, roomy_server: OwnServer):
    send = _task(stoppable)
    await send.enqueue(0)
    roomy_server.stop()
    one = asyncio.create_task(send.options(patience=60).enqueue(1))
    many = asyncio.create_task(send.options(patience=60).enqueue_many([send.call(2), send.call(3)]))
    blocking = asyncio.create_task(asyncio.to_thread(send.options(patience=60).sync.enqueue, 4))
    await asyncio.sleep(1)
    assert not one.done()
    roomy_server.start()

    jobs = [await one, *(await many), await blocking]

    (_, *ready) = await _ready(stoppable)
    assert sorted(ready) == sorted(job.id for job in jobs)
    assert len(ready) == 4


@pytest.mark.slow
async def test_the_first_call_of_an_app_waits_too(stoppable: App, roomy_server: OwnServer):
    await stoppable.close()
    roomy_server.stop()
    waiting = asyncio.create_task(_task(stoppable).options(patience=60).enqueue(1))
    await asyncio.sleep(0.5)
    assert not waiting.done()
    roomy_server.start()
    assert (await waiting).created


@pytest.mark.slow
async def test_after_the_patience_the_last_error_is_raised(stoppable: App, roomy_server: OwnServer):
    roomy_server.stop()
    try:
        began = time.monotonic()
        with pytest.raises(StoreUnavailable):
            await _task(stoppable).options(patience=1).enqueue(1)
        assert 0.9 < time.monotonic() - began < 15
    finally:
        roomy_server.start()


@pytest.mark.parametrize("was_committed", [True, False])
async def test_a_lost_reply_is_settled_by_repeating_with_the_same_id(
    app: App, send: TaskHandle[[int], None], monkeypatch: pytest.MonkeyPatch, was_committed: bool
):
    before = set(await _ready(app))
    enqueue, calls = app.backend.jobs.enqueue, []

    async def flaky(jobs):
        calls.append([job.id for job in jobs])
        if len(calls) == 1:
            if was_committed:
                await enqueue(jobs)
            raise OutcomeUnknown("the reply was lost")
        if len(calls) < 4:
            raise StoreUnavailable("the server is down")
        return await enqueue(jobs)

    monkeypatch.setattr(app.backend.jobs, "enqueue", flaky)
    job = await send.options(patience=30).enqueue(1)

    assert len(calls) == 4
    assert calls == [[job.id]] * 4
    assert set(await _ready(app)) - before == {job.id}
    assert job.created is not was_committed


async def test_a_reply_that_stays_lost_is_unknown_to_the_end(
    app: App, send: TaskHandle[[int], None], monkeypatch: pytest.MonkeyPatch
):
    calls: list[str] = []

    async def lost(jobs):
        calls.append(jobs[0].id)
        if len(calls) == 1:
            raise OutcomeUnknown("the reply was lost")
        raise StoreUnavailable("the server is down")

    monkeypatch.setattr(app.backend.jobs, "enqueue", lost)
    with pytest.raises(OutcomeUnknown) as error:
        await send.options(patience=0.3).enqueue(1)
    assert set(error.value.job_ids) == set(calls)


def test_patience_is_refused_with_a_connection_of_the_caller(send: TaskHandle[[int], None]):
    with pytest.raises(ConfigError, match="repeat the whole transaction"):
        send.options(patience=30, using=object())
    with pytest.raises(ConfigError, match="patience"):
        send.options(patience=-1)
