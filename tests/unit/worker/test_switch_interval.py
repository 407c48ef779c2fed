from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest

from holdfast.worker.switch_interval import quick_switches


@pytest.fixture(autouse=True)
def before() -> Iterator[float]:
    outside = sys.getswitchinterval()
    sys.setswitchinterval(0.005)
    yield sys.getswitchinterval()
    sys.setswitchinterval(outside)


def test_threads_switch_quickly_while_a_worker_runs_and_as_before_after_it(before):
    with quick_switches():
        assert sys.getswitchinterval() < before
    assert sys.getswitchinterval() == before


def test_the_first_of_two_workers_to_end_leaves_the_other_its_quick_switches(before):
    first, second = quick_switches(), quick_switches()
    first.__enter__()
    quick = sys.getswitchinterval()
    second.__enter__()
    first.__exit__(None, None, None)
    assert sys.getswitchinterval() == quick
    second.__exit__(None, None, None)
    assert sys.getswitchinterval() == before


def test_an_interval_that_is_shorter_already_is_kept(before):
    sys.setswitchinterval(0.00001)
    shorter = sys.getswitchinterval()
    with quick_switches():
        assert sys.getswitchinterval() == shorter
