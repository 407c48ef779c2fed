"""`using=` joins the caller's own transaction; what is no such transaction is refused with the remedy."""

from __future__ import annotations

import sqlite3

import pytest
from tests.app.work import connected, run_all, total

from holdfast import App, ConfigError, Context, JobState


@pytest.fixture
def send(app: App):
    @app.task
    async def send(n: int) -> None: ...

    return send


@pytest.mark.parametrize("using", ["jobs.db", 7, object(), {"conn": 1}], ids=lambda using: type(using).__name__)
async def test_a_wrong_object_is_refused(app, send, using):
    with pytest.raises(ConfigError, match=r"using= must be a sqlite3\.Connection to sqlite://"):
        await send.options(using=using).enqueue(n=1)
    with pytest.raises(ConfigError, match=r"using= must be a sqlite3\.Connection"):
        await send.options(using=using).enqueue_many([{"n": 1}])

    assert await total(app) == 0


async def test_a_connection_outside_a_transaction_is_refused(file_app, tmp_path):
    send = file_app.task(_send)
    await file_app.opened()
    refusal = pytest.raises(ConfigError, match=r"execute\('begin immediate'\) first")
    with connected(tmp_path / "jobs.db") as connection, refusal:
        await send.options(using=connection).enqueue(n=1)

    assert await total(file_app) == 0


async def _send(n: int) -> None: ...


async def test_a_connection_to_another_file_is_refused_and_nothing_is_written_there(file_app, tmp_path):
    send = file_app.task(_send)
    with connected(tmp_path / "other.db") as connection:
        connection.execute("begin immediate")
        with pytest.raises(ConfigError, match=r"is open on '.*other\.db', not on sqlite:///.*jobs\.db"):
            await send.options(using=connection).enqueue(n=1)
        connection.execute("commit")
        assert connection.execute("select count(*) from sqlite_schema").fetchone() == (0,)

    assert await total(file_app) == 0


async def test_a_connection_to_memory_is_refused(app, send):
    connection = sqlite3.connect(":memory:", isolation_level=None)
    connection.execute("begin immediate")
    try:
        with pytest.raises(ConfigError, match="is open on 'memory', not on sqlite://"):
            await send.options(using=connection).enqueue(n=1)
    finally:
        connection.close()

    assert await total(app) == 0


async def test_a_link_to_the_same_file_is_the_same_file(file_app, tmp_path):
    send = file_app.task(_send)
    await file_app.opened()
    (tmp_path / "link.db").symlink_to(tmp_path / "jobs.db")
    with connected(tmp_path / "link.db") as connection:
        connection.execute("begin immediate")
        job = await send.options(using=connection).enqueue(n=1)
        connection.execute("commit")

    assert await job.state() is JobState.READY


async def test_a_closed_connection_is_refused(file_app, tmp_path):
    send = file_app.task(_send)
    await file_app.opened()
    with connected(tmp_path / "jobs.db") as connection:
        connection.execute("begin immediate")

    with pytest.raises((ConfigError, sqlite3.ProgrammingError), match="closed"):
        await send.options(using=connection).enqueue(n=1)
    assert await total(file_app) == 0


async def test_a_wrong_object_given_to_complete_fails_the_attempt_with_the_remedy(app: App):
    @app.task(max_attempts=1)
    async def completes(ctx: Context) -> None:
        await ctx.complete(using="jobs.db")

    job = await completes.enqueue()
    await run_all(app)

    details = await job.details()
    assert details.job.state is JobState.FAILED
    assert "using= must be a sqlite3.Connection" in str(details.attempts[-1].message)
    assert details.result is None


async def test_bad_arguments_leave_the_callers_transaction_usable(file_app, tmp_path):
    send = file_app.task(_send)
    await file_app.opened()
    with connected(tmp_path / "jobs.db") as connection:
        connection.execute("begin immediate")
        connection.execute("create table mine (n integer)")
        with pytest.raises(ConfigError):
            await send.options(using=connection, max_attempts=0).enqueue(n=1)
        job = await send.options(using=connection).enqueue(n=1)
        assert connection.in_transaction
        connection.execute("commit")
        assert connection.execute("select count(*) from mine").fetchone() == (0,)

    assert await job.state() is JobState.READY


@pytest.mark.parametrize("text", [str, bytes])
async def test_what_the_caller_makes_of_rows_is_of_no_matter_and_stays_as_it_was(file_app, tmp_path, text):
    def named(cursor: sqlite3.Cursor, row: tuple[object, ...]) -> dict[str, object]:
        return {column[0]: value for column, value in zip(cursor.description, row, strict=True)}

    send = file_app.task(_send)
    await file_app.opened()
    with connected(tmp_path / "jobs.db") as connection:
        connection.row_factory, connection.text_factory = named, text
        connection.execute("begin immediate")
        await send.options(using=connection, delay=60).enqueue(n=1)
        await send.options(using=connection).enqueue_many([{"n": 2}, {"n": 3}])
        assert connection.execute("select 7 as seven").fetchone() == {"seven": 7}
        connection.execute("commit")

    assert await total(file_app) == 3
