"""An app with its events in Kafka, and a plain client of the broker for what others do."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from confluent_kafka import Producer, admin
from tests.servers import mysql
from tests.servers.kafka import new_prefix
from tests.servers.postgres_schemas import clean_schema

from holdfast import App


@pytest.fixture
def events() -> str:
    """The URL of the broker, with a prefix of topics for this test."""
    return new_prefix()


@pytest.fixture
def prefix(events: str) -> str:
    return urlsplit(events).path.strip("/")


@pytest.fixture
def servers(events: str) -> str:
    return urlsplit(events).netloc


@pytest.fixture
def store() -> str:
    """The store next to Kafka; tests for others name them as a parameter."""
    return "sqlite"


@pytest.fixture
def url(store: str, tmp_path: Path) -> Iterator[str]:
    if store == "sqlite":
        yield f"sqlite:///{tmp_path}/jobs.db?synchronous=normal"
    else:
        with clean_schema() if store == "postgresql" else mysql.clean_database("mariadb") as url:
            yield url


@pytest.fixture
async def app(url: str, events: str) -> AsyncIterator[App]:
    app = App(url, events=events)
    yield app
    await app.close()


@pytest.fixture
def client(servers: str) -> Any:
    """Kafka's own administration."""
    return admin.AdminClient({"bootstrap.servers": servers})


@pytest.fixture
def produce(servers: str) -> Iterator[Callable[..., None]]:
    """Write a record as another program would."""
    producer = Producer({"bootstrap.servers": servers})

    def write(topic: str, **record: Any) -> None:
        producer.produce(topic, **record)
        assert producer.flush(20) == 0

    yield write
    producer.flush(1)
