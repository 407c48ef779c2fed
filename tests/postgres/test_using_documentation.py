"""The page on callers' own transactions: every example is run, and does what it says."""

from __future__ import annotations

import ast
import asyncio
import inspect
import re
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from django.db import connections
from sqlalchemy.ext.asyncio import AsyncEngine
from tests.postgres.callers import django_alias
from tests.servers.postgres import parts_of

from holdfast import App

PAGE = Path(__file__).parents[2] / "docs" / "howto" / "transactions.md"
BLOCKS = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
SHOP, *ENQUEUES, COMPLETE = BLOCKS
SHOWN = "app@localhost:5432/shop"


class Shop:
    """What the examples share: the names of the first one, and tables."""

    def __init__(self, url: str) -> None:
        self._url = url
        self.schema = f"{parts_of(url)[1]}_shop"
        self.names: dict[str, Any] = {}
        self.run(SHOP)
        self.app: App = self.names["app"]

    def run(self, block: str) -> None:
        """Run an example as a program of its own would, in the main function of a thread."""
        server = parts_of(self._url)[0]
        text = block.replace(f"postgresql://{SHOWN}?schema=holdfast", self._url)
        text = text.replace(SHOWN, server.partition("://")[2])
        for table in ("orders", "payment"):  # of this test alone
            text = text.replace(f"into {table}", f"into {self.schema}.{table}")
        if "sync_to_async" in text:
            text += "await sync_to_async(connections.close_all)()\n"  # as Django does when a request is over
        if re.search(r"^(async|await) ", text, re.MULTILINE):
            text += "await app.close()\n"  # as a program does before its event loop ends
        code = compile(text, str(PAGE), "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)

        def main() -> None:
            work = eval(code, self.names)  # noqa: S307 - our own documentation
            if inspect.iscoroutine(work):
                asyncio.run(work)

        _in_thread(main)

    def ask(self, statement: str) -> list[tuple[Any, ...]]:
        with psycopg.connect(parts_of(self._url)[0], autocommit=True) as connection:
            cursor = connection.execute(statement.encode())
            return cursor.fetchall() if cursor.description else []


def _in_thread(main: Callable[[], None]) -> None:
    raised: list[BaseException] = []

    def run() -> None:
        try:
            main()
        except BaseException as error:  # noqa: BLE001 - raised again in the test
            raised.append(error)
        finally:
            connections.close_all()

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    if raised:
        raise raised[0]


@pytest.fixture
def shop(url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Shop]:
    alias = django_alias(parts_of(url)[0])
    monkeypatch.setitem(connections.settings, "default", connections.settings[alias])
    shop = Shop(url)
    shop.ask(f"create schema {shop.schema}")
    shop.ask(f"create table {shop.schema}.orders (id integer)")
    shop.ask(f"create table {shop.schema}.payment (order_id integer, job_id text)")
    yield shop
    engine = shop.names.get("engine")
    if isinstance(engine, AsyncEngine):
        shop.app.portal.call(engine.dispose())
    elif engine is not None:
        engine.dispose()
    shop.app.sync.close()
    shop.app.portal.close()
    shop.ask(f"drop schema {shop.schema} cascade")


@pytest.mark.parametrize("block", ENQUEUES, ids=lambda block: block.split()[1])
def test_an_example_stores_an_order_and_a_job_that_charges_it_once(shop: Shop, block: str):
    shop.run(block)
    ((order_id,),) = shop.ask(f"table {shop.schema}.orders")
    shop.app.sync.drain("default")
    assert [paid for paid, _ in shop.ask(f"table {shop.schema}.payment")] == [order_id]


def test_the_example_of_a_completion_completes_with_its_effect(shop: Shop):
    shop.run(COMPLETE)
    job = shop.app.sync.enqueue("refund", order_id=9)
    shop.app.sync.drain("default")
    assert shop.ask(f"table {shop.schema}.payment") == [(9, job.id)]
    assert shop.app.job(job.id).sync.result() == {"refunded": 9}
