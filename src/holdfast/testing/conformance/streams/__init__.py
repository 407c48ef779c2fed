"""The conformance suite for stores that keep streams: each contract sentence of the port as a test.

It uses the same fixtures as the suite for jobs. If `backend.streams` raises `Unsupported`, its tests are skipped with
the store's own reason.
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
    "allocation_maintenance",
    "transitions",
    "fencing",
    "transactions",
    "operators",
    "trimming",
    "refusals",
)

# Lets pytest show the operands of a failed assert, as it does for test modules.
pytest.register_assert_rewrite(*(f"{__name__}.{module}" for module in ("base", *THEMES)))
