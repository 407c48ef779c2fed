"""The stores that have streams; the others refuse them, which `tests/redis/test_refusals.py` shows."""

from __future__ import annotations

import pytest

STORES = [
    *("reference", "sqlite", "sqlite-memory", "postgres", "mariadb", "sqlite+kafka"),
    pytest.param("mysql", marks=pytest.mark.slow),
    pytest.param("postgres+kafka", marks=pytest.mark.slow),
    pytest.param("mariadb+kafka", marks=pytest.mark.slow),
]


@pytest.fixture(params=STORES)
def store(request: pytest.FixtureRequest) -> str:
    return str(request.param)


# With Kafka the others are slow tests: most of what they test is the store's own.
QUICK_WITH_KAFKA = {"test_append", "test_commit", "test_fencing", "test_read", "test_refusals"}
# Any SQL store can stand next to Kafka: on the third, what meets the statements of the store.
ON_MARIADB_WITH_KAFKA = {"test_commit", "test_fencing", "test_parking"}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items[:] = [item for item in items if "[mariadb+kafka" not in item.name or item.path.stem in ON_MARIADB_WITH_KAFKA]
    for item in items:
        if "[sqlite+kafka" in item.name and item.path.stem not in QUICK_WITH_KAFKA:
            item.add_marker(pytest.mark.slow)
