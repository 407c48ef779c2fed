"""The suite for stores that keep streams: the sentences of the port as tests.

It is bound with the same fixtures as the suite for jobs. Where `backend.streams` raises `Unsupported` its tests are
skipped with the store's own reason.
"""

from __future__ import annotations

import pytest

THEMES = (
    "append",
    "read",
    "visibility",
    "subscribe",
    "commit",
    "parking",
    "nodes",
    "allocation",
    "allocation_upkeep",
    "transitions",
    "fencing",
    "transactions",
    "operators",
    "trimming",
    "refusals",
)

# So that a failed assert shows its values, as in the tests of a project itself.
pytest.register_assert_rewrite(*(f"{__name__}.{module}" for module in ("base", *THEMES)))
