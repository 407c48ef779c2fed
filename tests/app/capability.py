"""Skips a test on stores that refuse what it needs."""

from __future__ import annotations

import pytest

from holdfast import App


def needs(app: App, what: str) -> None:
    """Skip the test, with the reason, if the app's store refuses `what`: join transactions, keep streams."""
    capabilities = app.backend.capabilities
    if what in capabilities.refusals:
        pytest.skip(f"{capabilities.store} cannot {what}: {capabilities.refusals[what]}")
