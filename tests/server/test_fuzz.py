"""Schemathesis against the OpenAPI document: whatever it sends, the answers are those that the document promises."""

from __future__ import annotations

from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis.specs.openapi.checks import positive_data_acceptance
from tests.server.processes import running_server

from holdfast.server.api.routes import OPERATIONS

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(200),
    pytest.mark.filterwarnings("ignore"),  # of the libraries that make the requests
]
EXAMPLES = 12  # of each operation
SEQUENCES, LONGEST = 40, 10
# A schema cannot say that `delay_seconds` excludes `run_at`, or that an argument must fit its task.
BEYOND_A_SCHEMA: list[Any] = [positive_data_acceptance]


def settled(examples: int, **more: Any) -> settings:
    return settings(
        max_examples=examples,
        deadline=None,
        database=None,
        derandomize=True,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
        **more,
    )


def without_waits(case: schemathesis.Case[Any]) -> None:
    """Answer at once: a wait that succeeds takes its time."""
    for part in (case.query, case.body):
        if isinstance(part, dict) and "wait_seconds" in part:
            part["wait_seconds"] = 0


def test_every_answer_is_one_that_the_document_promises(url: str):
    tried: list[str] = []
    failures: list[str] = []
    with running_server(url) as server:
        schema = schemathesis.openapi.from_url(f"{server.url}/v1/openapi.json")
        for result in schema.get_all_operations():
            operation: Any = getattr(result, "ok")()  # noqa: B009 - an `Err` has none, and fails here

            def check(case: schemathesis.Case[Any]) -> None:
                without_waits(case)
                case.call_and_validate(excluded_checks=BEYOND_A_SCHEMA)

            tried.append(operation.label)
            try:
                settled(EXAMPLES)(given(case=operation.as_strategy())(check))()
            except* Exception as group:  # noqa: BLE001 - all are reported below
                failures += [f"{operation.label}: {error}" for error in group.exceptions]
    assert (len(tried), failures) == (len(OPERATIONS), [])


def test_sequences_of_requests_are_answered_as_the_document_promises(url: str):
    """Each request uses what an earlier one has answered, by the links of the document."""
    done: dict[str, set[int]] = {}
    with running_server(url) as server:
        schema = schemathesis.openapi.from_url(f"{server.url}/v1/openapi.json")

        class Requests(schema.as_state_machine()):  # type: ignore[misc]
            def before_call(self, case: schemathesis.Case[Any]) -> None:
                without_waits(case)

            def after_call(self, response: Any, case: schemathesis.Case[Any]) -> None:
                super().after_call(response, case)
                done.setdefault(str(case.operation.definition.raw["operationId"]), set()).add(response.status_code)

            def validate_response(self, response: Any, case: Any, **more: Any) -> None:
                case.validate_response(
                    response, excluded_checks=BEYOND_A_SCHEMA, transport_kwargs=more or None, recorder=self.recorder
                )

        Requests.run(settings=settled(SEQUENCES, stateful_step_count=LONGEST))

    # What an answer leads to was found: the sequences did not consist of refusals.
    assert 201 in done["enqueue_job"]
    assert {"show_job", "claim_jobs", "finish_leases"} <= {name for name, codes in done.items() if 200 in codes}
