"""A part of the store of which some verbs are replaced."""

from __future__ import annotations

from typing import Any, Generic, TypeVar

Part = TypeVar("Part")


class OverStore(Generic[Part]):
    """Everything that a subclass does not define is that of the store's part."""

    def __init__(self, store: Part) -> None:
        self._store = store

    def __getattr__(self, name: str) -> Any:
        """Return what the store's part has."""
        return getattr(self._store, name)
