"""`holdfast job enqueue --after`: a job that waits for others."""

from __future__ import annotations

import pytest
from tests.unit.cli.conftest import APP


def test_a_job_is_enqueued_after_others(shop):
    first, second = shop.enqueue("charge", "--arg", "order_id=7"), shop.enqueue("charge", "--arg", "order_id=8")
    last = shop.enqueue("charge", "--arg", "order_id=9", "--after", first, "--after", second[:35])
    (listed,) = shop.json("job", "list", "--state", "blocked")["jobs"]
    assert listed["id"] == last
    assert {job["id"] for job in shop.json("job", "graph", last)["jobs"]} == {first, second, last}


@pytest.mark.parametrize(("options", "state"), [((), "cancelled"), (("--run-anyway",), "ready")])
def test_a_job_whose_parent_was_cancelled_runs_only_if_that_was_asked_for(shop, options, state):
    parent = shop.enqueue()
    job_id = shop.enqueue("charge", "--arg", "order_id=9", "--after", parent, *options)
    shop.run("job", "cancel", parent)
    assert shop.json("job", "show", job_id)["state"] == state


@pytest.mark.parametrize(
    ("options", "code", "told"),
    [
        (("--run-anyway",), 2, "without --after"),
        (("--after", "zzz"), 2, "not a valid job id"),
        (("--after", "01a1de74-f8d6-720e-a5d5-53e8b6fe34b7"), 1, "01a1de74-f8d6-720e-a5d5-53e8b6fe34b7"),
    ],
)
def test_a_job_whose_parents_are_not_there_is_refused(shop, options, code, told):
    refused = shop.run("job", "enqueue", "charge", *APP, "--arg", "order_id=7", *options, code=code)
    assert told in refused.stderr
