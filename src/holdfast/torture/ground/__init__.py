"""The tortured store as the conductor sees it, with the driver alone: what it reads owes nothing to Holdfast's code."""

from __future__ import annotations

from urllib.parse import urlsplit

from holdfast.errors import Unsupported
from holdfast.torture.ground.base import Ground
from holdfast.torture.ground.sqlite import SqliteGround


def ground_of(url: str) -> Ground:
    """Return the ground under a URL; raises `Unsupported` for a store that torture does not know."""
    scheme = urlsplit(url).scheme
    if scheme == "sqlite":
        return SqliteGround(url)
    if scheme in {"postgres", "postgresql"}:
        from holdfast.torture.ground.postgres import PostgresGround

        return PostgresGround(url)
    raise Unsupported(f"torture knows sqlite:// and postgresql://, not {scheme}://")


__all__ = ["Ground", "ground_of"]
