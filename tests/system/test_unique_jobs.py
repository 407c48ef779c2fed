"""The same unique keys, enqueued by many processes some of which are killed: never two unfinished jobs of a key."""

from __future__ import annotations

import random
import re
import time
from itertools import pairwise

import pytest

PROCESSES = 8
KILLS = 12
CALLS = 150


@pytest.mark.slow
@pytest.mark.timeout(180)
def test_no_key_has_two_unfinished_jobs_though_callers_and_workers_are_killed(ledger, workers):
    chance = random.Random(20261116)
    ledger.app.sync.opened()
    fleet = [workers.start(concurrency=3, poll_interval=0.02, lease=2.0) for _ in range(2)]
    callers = [_start(workers, chance) for _ in range(PROCESSES)]
    gone = []
    for _ in range(KILLS):
        time.sleep(chance.uniform(0.1, 0.6))  # a kill is to come at any moment
        victims = fleet if chance.random() < 0.3 else callers
        place = chance.randrange(len(victims))
        victims[place].kill()
        gone.append(victims[place])
        again = workers.start(concurrency=3, poll_interval=0.02, lease=2.0) if victims is fleet else None
        victims[place] = again or _start(workers, chance)
    for caller in callers:
        assert caller.end(within=60.0) == 0, caller.text
    texts = [caller.text for caller in [*gone, *callers]]
    got = [line for text in texts for line in re.findall(r"(?m)^got (\S+) (\S+) (\S+)$", text)]
    by_key: dict[str, set[str]] = {}
    for key, job_id, _ in got:
        by_key.setdefault(key, set()).add(job_id)
    created = [job_id for _, job_id, is_new in got if is_new == "True"]
    assert len(created) == len(set(created)) > KILLS  # a busy machine completes few jobs, and a key is free only then
    assert len(got) > len(created) + 50  # many got the job of another
    for key, job_ids in by_key.items():
        ledger.completed(*job_ids, within=30.0)
        _check(key, [ledger.show(job_id) for job_id in job_ids])


def _start(workers, chance):
    return workers.program("tests.system.apps.unique_program", str(CALLS), str(chance.randrange(10**6)))


def _check(key, jobs) -> None:
    """Of the jobs of a key, each was enqueued after the end of the one before, by the clock of the store."""
    assert {details.unique_key for details in jobs} == {key}
    times = sorted((details.job.enqueued_at, details.job.finished_at) for details in jobs)
    for (_, ended), (enqueued, _) in pairwise(times):
        assert enqueued >= ended, f"two unfinished jobs of {key} at {enqueued}"
