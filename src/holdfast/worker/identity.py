"""The id of a worker."""

from __future__ import annotations

import os

from holdfast.model.ids import new_id
from holdfast.model.names import check_name


def incarnation(worker_id: str | None) -> str:
    """Return an id that is unique to this run, even if two runs were given the same name."""
    suffix = new_id()[-8:]
    return f"{check_name('worker', worker_id)}.{suffix}" if worker_id else f"worker-{os.getpid()}.{suffix}"
