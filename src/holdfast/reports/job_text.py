"""The call of a job and the progress of its attempt, as texts."""

from __future__ import annotations

from typing import Any

import msgspec

from holdfast.store.values import LeaseView


def call_of(task: str, payload: str) -> str | None:
    """Return the call as it would be written in Python, `charge(order_id=7)`; None if the payload is not a call."""
    try:
        positional, named = msgspec.json.decode(payload, type=tuple[list[Any], dict[str, Any]])
    except msgspec.MsgspecError:
        return None
    return f"{task}({', '.join([*map(repr, positional), *(f'{name}={value!r}' for name, value in named.items())])})"


def progress_of(lease: LeaseView) -> str | None:
    """Return the progress of an attempt: percent and note."""
    percent = "" if lease.percent is None else f"{lease.percent:g} %"
    return " ".join(part for part in (percent, lease.note or "") if part) or None
