"""The suite that every store passes: the sentences of the port as tests.

A backend binds it with three fixtures and a module per theme that imports the classes:

- `clock` - a `holdfast.testing.clock.ManualClock`.
- `backend` - an opened `Backend` over an empty store whose clock that is.
- `make_backend` - an async function that opens a second `Backend` on the same store, where it can be shared.
- `effects` - an `Effects`: a table for the effects of handlers, where the store joins transactions.

A class states in `needs` the capabilities without which its sentences mean nothing. Where a store lacks one, its tests
are skipped with the store's own reason, and `refusals` checks that the store refuses.
"""

from __future__ import annotations

import pytest

THEMES = (
    "enqueue",
    "claim",
    "finish",
    "order_keys",
    "order_lines",
    "leases",
    "fencing",
    "rescue_prune",
    "losses",
    "queues",
    "notify",
    "concurrency",
    "time",
    "schema",
    "transactions",
    "insight",
    "refusals",
)

# So that a failed assert shows its values, as in the tests of a project itself.
pytest.register_assert_rewrite(*(f"{__name__}.{module}" for module in ("base", *THEMES)))
