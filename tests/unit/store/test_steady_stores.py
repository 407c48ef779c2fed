"""Every store compares its clock with that of the process, unless a test sets it."""

from __future__ import annotations

import pytest

from holdfast.app.open import open_backend

URLS = ["sqlite://", "postgresql://localhost/none", "mysql://localhost/none", "redis://localhost/0"]


@pytest.mark.parametrize("url", URLS)
def test_a_store_with_its_own_clock_notices_that_it_was_set(url: str):
    assert open_backend(url)._parts.here.rows.steady is not None  # type: ignore[attr-defined]


@pytest.mark.parametrize("url", URLS)
def test_the_clock_of_a_test_may_jump(url: str):
    assert open_backend(url, clock=lambda: 0)._parts.here.rows.steady is None  # type: ignore[attr-defined]
