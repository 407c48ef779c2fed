"""The conformance suite that every store passes: each contract sentence of the port as a test.

A backend binds the suite with these fixtures and one module per theme that imports the test classes:

- `clock`: a `holdfast.testing.clock.ManualClock`.
- `backend`: an open `Backend` over an empty store that uses this clock.
- `make_backend`: an async function that opens another `Backend` on the same store (only for shared stores).
- `effects`: an `EffectTable` for the effects of handlers (only for stores that commit effects).

A test class lists the capabilities that it requires in `needs`. If a store lacks one, its tests are skipped with the
store's own reason, and `refusals` checks that the store raises `Unsupported`.
"""

from __future__ import annotations

import pytest

THEMES = (
    "enqueue",
    "unique",
    "unique_maintenance",
    "claim",
    "finish",
    "order_keys",
    "blocked_jobs",
    "parents",
    "parents_ends",
    "leases",
    "fencing",
    "rescue_prune",
    "bulk_actions",
    "losses",
    "queues",
    "schedules",
    "stored_records",
    "notify",
    "concurrency",
    "time",
    "schema",
    "transactions",
    "batches",
    "queued_effects",
    "queued_batches",
    "insight",
    "explanations",
    "refusals",
)

# Lets pytest show the operands of a failed assert, as it does for test modules.
pytest.register_assert_rewrite(*(f"{__name__}.{module}" for module in ("base", *THEMES)))
