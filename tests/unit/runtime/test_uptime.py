from __future__ import annotations

import time

import pytest

from holdfast.runtime.uptime import uptime


def test_it_never_goes_back():
    looks = [uptime() for _ in range(1000)]
    assert looks == sorted(looks)


@pytest.mark.skipif(not hasattr(time, "CLOCK_BOOTTIME"), reason="this system has no clock that counts its sleep")
def test_it_counts_the_time_that_the_machine_has_slept(monkeypatch):
    clocks = {time.CLOCK_MONOTONIC: 5.0, time.CLOCK_BOOTTIME: 3605.0}
    monkeypatch.setattr(time, "clock_gettime", clocks.__getitem__)
    assert uptime() == 3605.0
