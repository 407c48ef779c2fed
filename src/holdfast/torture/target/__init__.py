"""The tortured store as the conductor sees it, with the driver alone: what it reads owes nothing to Holdfast's code."""

from __future__ import annotations

from holdfast.torture.target.base import Target
from holdfast.torture.target.sqlite import SqliteGround
from holdfast.torture.urls import store_of


def ground_of(url: str) -> Target:
    """Return the ground under a URL; raises as `store_of` does."""
    if store_of(url) == "sqlite":
        return SqliteGround(url)
    from holdfast.torture.target.postgres import PostgresGround

    return PostgresGround(url)


__all__ = ["Target", "ground_of"]
