from __future__ import annotations

import pytest

from holdfast.errors import ConfigError
from holdfast.worker.settings import WorkerConfig


@pytest.mark.parametrize(
    ("setting", "remedy"),
    [
        ({"concurrency": 0}, "at least 1"),
        ({"lease": 0.0}, "more than 0"),
        ({"lease": float("nan")}, "more than 0"),
        ({"drain_timeout": -1.0}, "0 or more"),
        ({"extend_at": 0.95}, "for example 0.5"),
        ({"flush_after": 20.0}, "0.005"),
        ({"rescue_every": 10.0}, "at most 6 s"),
    ],
)
def test_a_setting_that_cannot_work_is_refused_with_its_name_and_the_remedy(setting, remedy):
    with pytest.raises(ConfigError) as refusal:
        WorkerConfig(**setting)
    assert next(iter(setting)) in str(refusal.value)
    assert remedy in str(refusal.value)


def test_rescue_recurs_well_within_the_gap_that_would_break_access():
    for lease in (1.0, 30.0, 3600.0):
        assert WorkerConfig(lease=lease).rescue_period <= min(lease / 5, 5.0)
