from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from holdfast.errors import ConfigError
from holdfast.store.values import Retention

FIELDS = ("completed", "failed", "cancelled", "counts")


@pytest.mark.parametrize("field", FIELDS)
@pytest.mark.parametrize("given", [7, 0, 1.5, True, "7 days"])
def test_a_retention_that_is_no_timedelta_is_refused_with_the_remedy(field, given):
    kept: dict[str, Any] = {field: given}

    with pytest.raises(ConfigError, match=rf"{field}=.*pass a timedelta, as in {field}=timedelta\(days=7\), or None"):
        Retention(**kept)


def test_a_retention_that_is_negative_is_refused():
    with pytest.raises(ConfigError, match="retention of failed jobs is -1 day, 0:00:00: a duration cannot be negative"):
        Retention(failed=timedelta(days=-1))


def test_none_keeps_for_ever_and_a_timedelta_is_kept_as_it_is():
    kept = Retention(completed=None, failed=timedelta(hours=3))

    assert (kept.completed, kept.failed) == (None, timedelta(hours=3))
