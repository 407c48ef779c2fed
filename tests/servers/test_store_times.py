"""Which store the time of a test is counted for."""

from __future__ import annotations

from typing import Literal

import pytest
from tests.servers.store_times import NO_STORE, store_of, times

TESTS = {
    "tests/conformance/test_claim.py::TestClaim::test_one[sqlite-memory]": "sqlite",
    "tests/conformance/test_claim.py::TestClaim::test_one[postgres-first]": "postgresql",
    "tests/conformance/test_claim.py::TestClaim::test_one[reference]": "reference model",
    "tests/conformance/test_claim.py::TestClaim::test_one[valkey]": "valkey",
    "tests/conformance/test_claim.py::TestClaim::test_one[redis-first]": "redis",
    "tests/redis/test_scripts.py::test_one": "valkey",
    "tests/conformance/test_claim.py::TestClaim::test_one[mariadb]": "mariadb",
    "tests/conformance/test_claim.py::TestClaim::test_one[mysql-first]": "mysql",
    "tests/mysql/test_plans.py::test_one[stale]": "mariadb",
    "tests/mysql/test_plans.py::test_one[mysql]": "mysql",
    "tests/torture/test_smoke.py::test_one[jobs-postgresql]": "postgresql",
    "tests/postgres/test_plans.py::test_one[stale]": "postgresql",
    "tests/app/test_pull_postgres.py::test_one[blocking]": "postgresql",
    "tests/interleavings/test_pairs.py::test_one": "postgresql",
    "tests/app/test_enqueue.py::test_one[memory]": "sqlite",
    "tests/unit/model/test_turn.py::test_one[a-b]": NO_STORE,
    "tests/unit/model/test_turn.py::test_one[not a postgresql url]": NO_STORE,
}


@pytest.mark.parametrize(("nodeid", "store"), TESTS.items())
def test_the_store_of_a_test_is_its_parameter_or_its_place(nodeid: str, store: str):
    assert store_of(nodeid) == store


def test_set_up_and_teardown_count_as_time_of_one_test():
    phases: dict[Literal["setup", "call", "teardown"], float] = {"setup": 1.0, "call": 2.0, "teardown": 0.5}
    reports = [
        pytest.TestReport("tests/sqlite/a.py::b", ("a.py", 1, "b"), {}, "passed", None, when, duration=seconds)
        for when, seconds in phases.items()
    ]
    assert times(reports) == {"sqlite": (3.5, 1)}
