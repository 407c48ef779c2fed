"""Who a worker is."""

from __future__ import annotations

import os

from holdfast.model.ids import new_id
from holdfast.model.names import check_name


def incarnation(worker_id: str | None) -> str:
    """Return an id of this very run: two that were given the same name must not pass for one another."""
    suffix = new_id()[-8:]
    return f"{check_name('worker', worker_id)}.{suffix}" if worker_id else f"worker-{os.getpid()}.{suffix}"
