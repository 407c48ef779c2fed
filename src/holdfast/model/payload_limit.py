"""How much a claim or a fetch returns: its payloads are bounded in bytes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol, TypeVar


class _WithPayload(Protocol):
    @property
    def payload(self) -> str: ...


Item = TypeVar("Item", bound=_WithPayload)


def within(items: Iterable[Item], max_bytes: int) -> list[Item]:
    """Return items until their payloads would exceed `max_bytes`, but at least the first; take no more than needed."""
    taken: list[Item] = []
    size = 0
    for item in items:
        payload = item.payload
        size += len(payload) if payload.isascii() else len(payload.encode())
        if size > max_bytes and taken:
            break
        taken.append(item)
    return taken
