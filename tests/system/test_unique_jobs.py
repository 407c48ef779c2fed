"""Unique keys in processes that are killed, stopped and shut down: never two unfinished jobs of a key."""

from __future__ import annotations

import random
import re
import time
from itertools import pairwise

import pytest
from tests.system.fleet import Fleet

PROCESSES = 5
STRIKES = 10
CALLS = 80


@pytest.mark.slow
@pytest.mark.timeout(180)
def test_no_key_has_two_unfinished_jobs_whatever_happens_to_callers_and_workers(ledger, workers):
    chance = random.Random(20261116)
    ledger.app.sync.opened()
    fleet = Fleet(workers, 3, seed=20261116)
    callers = [_start(workers, chance) for _ in range(PROCESSES)]
    gone = []
    for strike in range(STRIKES):
        time.sleep(chance.uniform(0.1, 0.6))  # a kill is to come at any moment
        if strike % 2:
            fleet.strike()
            continue
        place = chance.randrange(len(callers))
        callers[place].kill()
        gone.append(callers[place])
        callers[place] = _start(workers, chance)
    for caller in callers:
        assert caller.end(within=60.0) == 0, caller.text
    texts = [caller.text for caller in [*gone, *callers]]
    got = [line for text in texts for line in re.findall(r"(?m)^got (\S+) (\S+) (\S+)$", text)]
    by_key: dict[str, set[str]] = {}
    for key, job_id, _ in got:
        by_key.setdefault(key, set()).add(job_id)
    created = [job_id for _, job_id, is_new in got if is_new == "True"]
    assert len(created) == len(set(created)) > STRIKES  # a busy machine completes few jobs, and a key is free only then
    assert len(got) > len(created) + 50  # many got the job of another
    fleet.resumed()
    for key, job_ids in by_key.items():
        ledger.completed(*job_ids, within=30.0)
        ledger.assert_once(list(job_ids))
        _check(key, [ledger.show(job_id) for job_id in job_ids])
    fleet.shut_down()


def _start(workers, chance):
    return workers.program("tests.system.apps.unique_program", str(CALLS), str(chance.randrange(10**6)))


def _check(key, jobs) -> None:
    """Of the jobs of a key, each was enqueued after the end of the one before, by the clock of the store."""
    assert {details.unique_key for details in jobs} == {key}
    times = sorted((details.job.enqueued_at, details.job.finished_at) for details in jobs)
    for (_, ended), (enqueued, _) in pairwise(times):
        assert enqueued >= ended, f"two unfinished jobs of {key} at {enqueued}"
