"""Schemathesis against the OpenAPI document: whatever it sends, the answers are those that the document promises."""

from __future__ import annotations

from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis.specs.openapi.checks import positive_data_acceptance
from tests.server.processes import running_server

from holdfast.server.api.routes import OPERATIONS

pytestmark = [pytest.mark.slow, pytest.mark.timeout(200)]
EXAMPLES = 12  # of each operation
# A schema cannot say that `delay_seconds` excludes `run_at`, or that an argument must fit its task.
BEYOND_A_SCHEMA: list[Any] = [positive_data_acceptance]


@pytest.mark.filterwarnings("ignore")  # of the libraries that make the requests
def test_every_answer_is_one_that_the_document_promises(url: str):
    quickly = settings(
        max_examples=EXAMPLES,
        deadline=None,
        database=None,
        derandomize=True,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    tried: list[str] = []
    failures: list[str] = []
    with running_server(url) as server:
        schema = schemathesis.openapi.from_url(f"{server.url}/v1/openapi.json")
        for result in schema.get_all_operations():
            operation: Any = getattr(result, "ok")()  # noqa: B009 - an `Err` has none, and fails here

            def check(case: schemathesis.Case[Any]) -> None:
                if case.query and "wait_seconds" in case.query:
                    case.query["wait_seconds"] = 0  # a wait that succeeds takes its time
                if isinstance(case.body, dict) and "wait_seconds" in case.body:
                    case.body["wait_seconds"] = 0
                case.call_and_validate(excluded_checks=BEYOND_A_SCHEMA)

            tried.append(operation.label)
            try:
                quickly(given(case=operation.as_strategy())(check))()
            except* Exception as group:  # noqa: BLE001 - all are reported below
                failures += [f"{operation.label}: {error}" for error in group.exceptions]
    assert (len(tried), failures) == (len(OPERATIONS), [])
