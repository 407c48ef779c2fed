"""The recording backend records the true outcome of calls that joined a transaction."""

from __future__ import annotations

import pytest

from holdfast import App
from holdfast.torture.events import Finished, HistoryRecord
from holdfast.torture.recorder import Recorder
from holdfast.torture.recording_backend import RecordingBackend


class Kept(Recorder):
    """Keeps the records."""

    def __init__(self) -> None:
        super().__init__(None, run="none", role="worker", name="test")
        self.records: list[HistoryRecord] = []

    def write(self, event: HistoryRecord) -> None:
        self.records.append(event)

    def verdicts(self) -> list[str]:
        return [record.verdict for record in self.records if isinstance(record, Finished)]


class Broken(Exception):  # noqa: N818 - the caller's own
    """The block of a batch fails."""


@pytest.fixture
def kept() -> Kept:
    return Kept()


@pytest.fixture
def app(tmp_path, kept) -> App:
    app = App(f"sqlite:///{tmp_path}/store.db")
    app.backend, _ = RecordingBackend.around(app.backend, kept)

    @app.task(queue="till")
    async def pay() -> None: ...

    return app


async def test_the_ends_of_a_batch_are_recorded_when_it_is_committed(app, kept):
    async with app:
        for _ in range(2):
            await app.enqueue("pay")
        jobs = await app.claim("till", 2)
        async with app.batch(jobs) as batch:
            for job in batch.held:
                batch.complete(job)
            assert kept.verdicts() == []

        assert kept.verdicts() == ["done", "done"]


async def test_the_ends_of_a_batch_that_is_rolled_back_are_recorded_as_not_done(app, kept, monkeypatch):
    async with app:
        await app.enqueue("pay")
        jobs = await app.claim("till")

        with pytest.raises(Broken):
            await broken_after_the_ends(app, jobs, monkeypatch)

        assert kept.verdicts() == ["unavailable"]
        await jobs[0].complete()
        assert kept.verdicts() == ["unavailable", "done"]


async def broken_after_the_ends(app: App, jobs, monkeypatch) -> None:
    def break_off(point: str) -> None:
        if point == "before_commit":
            raise Broken

    monkeypatch.setattr("holdfast.runtime.effect.failpoint", break_off)
    async with app.batch(jobs) as batch:
        batch.complete(jobs[0])


def test_the_same_holds_for_blocking_code(app, kept):
    with app.sync:
        app.sync.enqueue("pay")
        jobs = app.sync.claim("till")
        with app.sync.batch(jobs) as batch:
            batch.complete(jobs[0])
            assert kept.verdicts() == []

        assert kept.verdicts() == ["done"]
