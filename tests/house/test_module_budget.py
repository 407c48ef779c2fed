from __future__ import annotations

from tests.house.sources import modules

BUDGET = 400

# path from the top of the repository -> why it may be longer
EXCEPTIONS: dict[str, str] = {}


def lengths() -> dict[str, int]:
    return {module.path: len(module.text.splitlines()) for module in modules("src", "tests", "benchmarks", "examples")}


def test_no_module_is_longer_than_the_budget():
    too_long = {path: count for path, count in lengths().items() if count > BUDGET and path not in EXCEPTIONS}

    assert not too_long, f"over {BUDGET} lines; split by behaviour, or state a reason in EXCEPTIONS: {too_long}"


def test_every_exception_is_needed_and_has_a_reason():
    found = lengths()

    assert [path for path in EXCEPTIONS if found.get(path, 0) <= BUDGET] == []
    assert [path for path, reason in EXCEPTIONS.items() if not reason.strip()] == []


def test_the_budget_sees_the_package():
    assert "src/holdfast/__init__.py" in lengths()
