from __future__ import annotations

import re

from tests.house.sources import modules

BUDGET = 400

# path from the top of the repository -> why it may be longer
EXCEPTIONS: dict[str, str] = {}

TARGET_BUDGET = 150
STORES = ("sqlite", "postgres", "mysql", "redis")

# store -> why its target in the torture may be longer
LONGER_TARGETS: dict[str, str] = {
    "redis": "it reads the keys without Holdfast's own code: it unpacks and joins records, as statements do elsewhere",
}


def target_length(store: str) -> int:
    """Return the lines of the modules with which a store is a target of the torture."""
    return sum(count for path, count in lengths().items() if re.search(rf"/torture/target/{store}(_\w+)?\.py$", path))


def lengths() -> dict[str, int]:
    return {module.path: len(module.text.splitlines()) for module in modules("src", "tests", "benchmarks", "examples")}


def test_no_module_is_longer_than_the_budget():
    too_long = {path: count for path, count in lengths().items() if count > BUDGET and path not in EXCEPTIONS}

    assert not too_long, f"over {BUDGET} lines; split by behaviour, or state a reason in EXCEPTIONS: {too_long}"


def test_every_exception_is_needed_and_has_a_reason():
    found = lengths()

    assert [path for path in EXCEPTIONS if found.get(path, 0) <= BUDGET] == []
    assert [path for path, reason in EXCEPTIONS.items() if not reason.strip()] == []


def test_a_target_of_the_torture_is_within_its_budget():
    found = {store: target_length(store) for store in STORES}

    assert min(found.values()) > 0
    assert {store for store, count in found.items() if count > TARGET_BUDGET} == LONGER_TARGETS.keys(), found


def test_the_budget_sees_the_package():
    assert "src/holdfast/__init__.py" in lengths()
