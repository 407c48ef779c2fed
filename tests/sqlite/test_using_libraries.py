"""`using=` on SQLite with the sessions and connections of SQLAlchemy and Django."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy
from django.db import connections, transaction
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session
from tests.app.work import ask, change
from tests.servers.django_settings import add_database

from holdfast import App, ConfigError
from holdfast.app.tasks import TaskHandle

Opened = Callable[[Path], AbstractContextManager[Any]]


class UndoneError(Exception):
    """Ends a transaction by a rollback."""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "orders.db"


@pytest.fixture
def app(path: Path) -> Iterator[App]:
    app = App(f"sqlite:///{path}?synchronous=normal")
    with app.sync:
        change(path, "create table payment (order_id integer)")
        yield app


@pytest.fixture
def charge(app: App) -> TaskHandle[..., Any]:
    @app.task
    async def charge(order_id: int) -> None: ...

    return charge


@contextmanager
def of_sqlalchemy(path: Path, make: Callable[[sqlalchemy.Engine], Any], **options: Any) -> Iterator[Any]:
    engine = sqlalchemy.create_engine(f"sqlite:///{path}", **options)
    try:
        with make(engine) as using, using.begin():
            yield using
    finally:
        engine.dispose()


def connection(path: Path) -> AbstractContextManager[Any]:
    return of_sqlalchemy(path, sqlalchemy.Engine.connect)


def session(path: Path) -> AbstractContextManager[Any]:
    return of_sqlalchemy(path, Session)


def django_alias(path: Path) -> str:
    return add_database(str(path), ENGINE="django.db.backends.sqlite3", NAME=str(path))


@contextmanager
def of_django(path: Path) -> Iterator[Any]:
    alias = django_alias(path)
    try:
        with transaction.atomic(using=alias):
            yield connections[alias]
    finally:
        connections[alias].close()


def pay(using: Any) -> None:
    statement = "insert into payment values (7)"
    if hasattr(using, "cursor"):
        with using.cursor() as cursor:
            cursor.execute(statement)
    else:
        using.execute(sqlalchemy.text(statement))


@pytest.mark.parametrize("opened", [connection, session, of_django])
@pytest.mark.parametrize("first", [True, False], ids=["enqueued first", "enqueued last"])
@pytest.mark.parametrize("commits", [True, False], ids=["commit", "rollback"])
def test_a_job_and_an_event_share_the_fate_of_the_callers_transaction(
    app: App, charge: TaskHandle[..., Any], path: Path, opened: Opened, first: bool, commits: bool
):
    def run() -> None:
        with opened(path) as using:
            if not first:
                pay(using)
            charge.options(using=using).sync.enqueue(order_id=7)
            app.sync.append("orders", stream="7", name="paid", using=using)
            if first:
                pay(using)
            if not commits:
                raise UndoneError

    if commits:
        run()
    else:
        with pytest.raises(UndoneError):
            run()

    assert ask(path, "select order_id from payment") == ([(7,)] if commits else [])
    assert len(app.jobs.sync.list("ready").jobs) == commits
    assert [category.name for category in app.sync.categories()] == (["orders"] if commits else [])


@pytest.mark.parametrize("opened", [connection, session])
async def test_an_async_call_uses_the_connection_in_its_own_thread(path: Path, opened: Opened):
    async with App(f"sqlite:///{path}?synchronous=normal") as app:

        @app.task
        async def charge(order_id: int) -> None: ...

        await app.opened()
        with opened(path) as using:
            await charge.options(using=using).enqueue(order_id=7)

        assert len((await app.jobs.list("ready")).jobs) == 1


def test_what_is_no_transaction_of_this_store_is_refused(charge: TaskHandle[..., Any], path: Path, tmp_path: Path):
    def enqueue(using: object) -> None:
        charge.options(using=using).sync.enqueue(order_id=7)

    with connection(tmp_path / "other.db") as using, pytest.raises(ConfigError, match=r"is open on '.*other\.db'"):
        enqueue(using)
    with (
        of_sqlalchemy(path, sqlalchemy.Engine.connect, isolation_level="AUTOCOMMIT") as using,
        pytest.raises(ConfigError, match="is not in a transaction"),
    ):
        enqueue(using)
    with pytest.raises(ConfigError, match=r"open `with transaction\.atomic\(\):` first"):
        enqueue(connections[django_alias(path)])
    engine = sqlalchemy.create_engine("postgresql+psycopg://localhost/shop")
    with Session(engine) as using, pytest.raises(ConfigError, match=r"uses postgresql\+psycopg.*sqlite\+pysqlite"):
        enqueue(using)
    awaited = AsyncSession(create_async_engine("postgresql+asyncpg://localhost/shop"))
    with pytest.raises(ConfigError, match=r"uses postgresql\+asyncpg: pass a blocking Session.*sqlite\+pysqlite"):
        enqueue(awaited)
