"""A worker of which a part has died ends, rather than looking alive while nothing runs."""

from __future__ import annotations

import pytest


@pytest.mark.parametrize("part", ["claim", "keeper"])
def test_a_worker_whose_claims_or_keeper_die_of_an_unforeseen_error_ends_with_70(ledger, workers, part):
    job = ledger.enqueue("pay")
    worker = workers.start(broken=part)
    assert worker.end() == 70, worker.text
    assert f"an error in the {part} that nobody foresaw" in "\n".join(worker.seen)
    workers.run_until_empty()
    ledger.assert_once([job])


def test_a_supervisor_follows_a_worker_that_ended_with_70(ledger, workers):
    ledger.enqueue("pay")
    supervisor = workers.start(broken="keeper", processes=2)
    for _ in range(3):
        supervisor.line(r"exited with code 70; restarting in")
