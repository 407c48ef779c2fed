from __future__ import annotations

import pytest
from tests.unit.worker.driver import Driver

from holdfast.worker.decision import Exit
from holdfast.worker.settings import WorkerConfig

SEEDS = 200


def settings(seed: int, **changes: object) -> WorkerConfig:
    shapes = [
        {"concurrency": 1, "prefetch_max": 0},
        {"concurrency": 4, "batch_max": 3, "flush_rows": 2},
        {"concurrency": 10},
    ]
    return WorkerConfig(lease=8.0, drain_timeout=5.0, **{**shapes[seed % 3], **changes})  # type: ignore[arg-type]


@pytest.mark.parametrize("base", range(0, SEEDS, 50))
def test_every_job_is_accounted_for_in_any_order_of_events_and_a_worker_until_empty_ends(base):
    for seed in range(base, base + 50):
        driver = Driver(seed, settings(seed, until_empty=True))
        for _ in range(600):
            driver.step()
        expire(driver)
        driver.run_out(bound=3000)
        assert driver.exit is Exit.DRAINED
        assert driver.totals() == driver.delivered
        assert driver.store.is_empty
        assert len(driver.store.done) == driver.jobs


@pytest.mark.parametrize("base", range(0, SEEDS, 50))
def test_a_stopped_worker_begins_nothing_more_and_ends_with_nothing_held(base):
    for seed in range(base, base + 50):
        driver = Driver(seed, settings(seed))
        for _ in range(driver.random.randrange(400)):
            driver.step()
        driver.stop()
        for _ in range(driver.random.randrange(300)):
            if driver.exit is None:
                driver.step()
        if driver.random.random() < 0.5:
            driver.stop()
        driver.run_out(bound=500)
        assert driver.totals() == driver.delivered
        assert len(driver.machine.holdings) == 0


def expire(driver: Driver) -> None:
    """Rescue what was claimed by calls whose answers were lost: nobody here knows of those leases."""
    driver.faults = False
    while driver.calls:
        driver.go_on_with_a_call()
    for seq, fence in list(driver.store.leased.items()):
        job = driver.machine.holdings.jobs.get(seq)
        if job is None or job.fence != fence:
            del driver.store.leased[seq]
            driver.store.ready.append(seq)
