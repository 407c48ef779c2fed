"""How many methods a new store has to write: the figures of decision 0017."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import re
from typing import TYPE_CHECKING

import pytest
from tests.house.sources import ROOT, modules

from holdfast.store.job_rows import JobRows
from holdfast.store.record_rows import RecordRows
from holdfast.store.schedule_rows import ScheduleRows
from holdfast.store.unique_keys import UniqueRows

if TYPE_CHECKING:
    from collections.abc import Iterator

DECISION = ROOT / "docs" / "decisions" / "0017-rules-once-over-narrow-rows.md"
OF_EVERY_BACKEND = {"capabilities", "extender"}  # of the protocol `Backend`, which the shared class leaves open
OF_EVENTS = {"append", "fetch"}  # of the protocols `EventLog` and `ConsumerStore`
ROWS = (JobRows, UniqueRows, ScheduleRows, RecordRows)  # protocols that the SQL stores share implementations of


def classes(package: str) -> Iterator[type]:
    """Yield every class that a package defines."""
    for found in pkgutil.walk_packages(importlib.import_module(package).__path__, f"{package}."):
        module = importlib.import_module(found.name)
        for value in vars(module).values():
            if inspect.isclass(value) and value.__module__ == module.__name__:
                yield value


def left_open(package: str) -> set[tuple[str, str]]:
    """Return the methods that shared classes leave abstract for the classes of a package, by class and name."""
    found: set[tuple[str, str]] = set()
    for cls in classes(package):
        shared = [base for base in cls.__mro__ if base.__module__.startswith("holdfast.")]
        shared = [base for base in shared if not base.__module__.startswith(f"{package}.")]
        for name in {name for base in shared for name in getattr(base, "__abstractmethods__", ())}:
            nearest = next(base for base in shared if name in vars(base))
            if name in getattr(nearest, "__abstractmethods__", ()):
                found.add((nearest.__name__, name))
    return found


def of_protocols(store: str) -> set[tuple[str, str]]:
    """Return the methods of protocols that a store writes without a shared class."""
    if store != "redis":
        return {("port", name) for name in OF_EVERY_BACKEND | OF_EVENTS}
    rows = {(rows.__name__, name) for rows in ROWS for name in vars(rows) if not name.startswith("_")}
    return rows | {("port", name) for name in OF_EVERY_BACKEND}


def documented() -> dict[str, tuple[int, int, int]]:
    """Return the figures of the decision: for each store, of shared classes, of protocols, and together."""
    rows = re.findall(
        r"^\| `backends/(\w+)` \| (\d+) \| (\d+) \| (\d+) \|$", DECISION.read_text(encoding="utf-8"), re.MULTILINE
    )
    return {store: (int(shared), int(protocols), int(total)) for store, shared, protocols, total in rows}


@pytest.mark.parametrize("store", ["sqlite", "postgres", "mysql", "redis"])
def test_the_decision_states_how_many_methods_a_store_writes(store: str):
    shared, protocols = left_open(f"holdfast.backends.{store}"), of_protocols(store)

    assert documented()[store] == (len(shared), len(protocols), len(shared) + len(protocols))


@pytest.mark.parametrize("store", ["sqlite", "postgres", "mysql", "redis"])
def test_every_method_that_is_counted_is_written_by_the_store(store: str):
    package = f"holdfast.backends.{store}"
    text = "\n".join(module.text for module in modules(f"src/{package.replace('.', '/')}"))
    counted = {name for _, name in left_open(package) | of_protocols(store)}

    assert {name for name in counted if not re.search(rf"\bdef {name}\b|\b{name}(: .+)? = ", text)} == set()
