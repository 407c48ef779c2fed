"""What is refused in or near a transaction of the store, and beside its categories: nothing is written."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Generator
from contextlib import closing, contextmanager
from typing import Any
from urllib.parse import urlsplit

import psycopg
import pytest
from psycopg import sql
from tests.kafka.test_consuming import until_lag
from tests.servers.postgres import parts_of

from holdfast import App, ConfigError, Event, EventContext, Unsupported

pytestmark = pytest.mark.parametrize("store", ["sqlite", "postgresql"])
REFUSED_TRANSACTION = r"Kafka cannot join a transaction: .*copy it to Kafka with app\.relay"


@contextmanager
def own_transaction(url: str) -> Generator[Any]:
    """Open a transaction of the caller's own, on the database of the store."""
    if url.startswith("sqlite"):
        with closing(sqlite3.connect(urlsplit(url).path.removeprefix("/"), isolation_level=None)) as connection:
            connection.execute("begin immediate")
            yield connection
            connection.execute("commit")
    else:
        server, schema = parts_of(url)
        with psycopg.connect(server) as connection:
            connection.execute(sql.SQL("set local search_path to {}").format(sql.Identifier(schema)))
            yield connection


async def test_an_append_in_the_callers_own_transaction_is_refused(app: App, url: str, prefix: str, client: Any):
    await app.category("orders", partitions=1)
    with own_transaction(url) as connection:
        for category in ("orders", "unknown"):
            with pytest.raises(Unsupported, match=REFUSED_TRANSACTION):
                await app.append(category, stream="a", name="placed", using=connection)

    assert [view.name for view in await app.categories()] == ["orders"]  # nothing was created in the store
    assert len(await app.read("orders")) == 0
    assert f"{prefix}unknown" not in client.list_topics(timeout=20).topics


async def test_a_category_without_a_valid_topic_is_refused(app: App):
    with pytest.raises(ConfigError, match="is not a valid Kafka topic name"):
        await app.append("orders:eu", stream="a", name="placed")

    @app.consumer("billing", category="orders:eu")
    async def billing(event: Event) -> None: ...

    async with asyncio.timeout(20):
        with pytest.raises(ConfigError, match="is not a valid Kafka topic name"):
            await app.node().run()


async def test_an_append_in_the_transaction_of_a_handler_is_refused(app: App, prefix: str, client: Any):
    await app.append("orders", stream="a", name="placed")
    refused: list[str] = []

    @app.consumer("billing", category="orders", poll_interval=0.2)
    async def billing(event: Event, ctx: EventContext) -> None:
        for category in ("orders", "unknown"):
            with pytest.raises(Unsupported, match=REFUSED_TRANSACTION):
                async with ctx.transaction():
                    await app.append(category, stream="a", name="billed")
            refused.append(category)

    async with app.working():
        await until_lag(app, "billing")

    assert refused == ["orders", "unknown"]
    assert [view.name for view in await app.categories()] == ["orders"]
    assert len(await app.read("orders")) == 1
    assert f"{prefix}unknown" not in client.list_topics(timeout=20).topics


async def test_an_append_to_a_relayed_category_joins_the_callers_transaction(app: App, url: str, prefix: str):
    app.relay("sales", topic=f"{prefix}sold")  # the category does not exist yet
    await app.opened()  # creates the tables, which it could not inside the transaction
    for number in (1, 2):
        with own_transaction(url) as connection:
            appended = await app.append("sales", stream="a", name="made", using=connection)
            assert appended.version == number
    assert len(await app.read("sales")) == 2


async def test_an_app_without_kafka_does_not_mistake_its_categories_for_empty_ones(app: App, url: str):
    await app.append("orders", stream="a", name="placed")
    other = App(url)
    try:
        for call in (
            other.append("orders", stream="a", name="placed"),
            other.read("orders", partition_id=0),
            other.trim("orders", 0),
        ):
            with pytest.raises(ConfigError, match="give the app the URL of that system too, as in App"):
                await call
    finally:
        await other.close()


async def test_a_category_of_the_store_stays_there_and_keeps_its_features(app: App, url: str):
    before = App(url)
    await before.append("sales", stream="a", name="made")
    await before.close()

    appended = await app.append("sales", stream="a", name="made", expected_version=1)

    assert appended.version == 2
    with pytest.raises(ConfigError, match="cannot be all or none"):
        await app.append_many(
            "sales", [{"stream": "a", "name": "x"}, {"stream": "a", "name": "x", "category": "orders"}]
        )
