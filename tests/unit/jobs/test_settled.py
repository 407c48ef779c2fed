"""What is written of an attempt whose handler has completed the job in a transaction of its own."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from holdfast.jobs.run import unless_settled
from holdfast.model.outcome import Completed, Retried
from holdfast.store.values import Standing


def completed_using() -> Any:
    job = SimpleNamespace(id="j1", lease="the lease", is_last_attempt=False)
    return SimpleNamespace(job=job, completed_by="using", uncompleted=lambda: None, committed=lambda: None)


def store_that_says(standing: Standing) -> Any:
    async def verify(_: object) -> Standing:
        return standing

    return SimpleNamespace(jobs=SimpleNamespace(verify=verify))


@pytest.mark.parametrize("standing", [Standing.HELD, Standing.LOST])
async def test_what_the_store_does_not_call_completed_is_never_written_as_completed(standing):
    outcome = await unless_settled(completed_using(), store_that_says(standing), Completed(None))

    assert isinstance(outcome, Retried)
    assert outcome.failure.error_class == "Uncommitted"


async def test_of_what_the_store_calls_completed_nothing_more_is_written():
    assert await unless_settled(completed_using(), store_that_says(Standing.COMPLETED), Completed(None)) is None
