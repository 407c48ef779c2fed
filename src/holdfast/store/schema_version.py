"""Checks the version of the tables against this version of Holdfast."""

from __future__ import annotations

from holdfast.errors import SchemaMismatch


def require_version(found: int, current: int, where: str) -> None:
    """Raise `SchemaMismatch`, with the remedy, unless the tables `where` have the current version; 0: no tables."""
    if found > current:
        message = (
            f"{where} have version {found}, newer than this Holdfast supports ({current}): "
            "upgrade the holdfast package in this environment"
        )
        raise SchemaMismatch(message)
    if found == 0:
        message = f"{where} are missing: check the URL, or run `holdfast schema install`"
        raise SchemaMismatch(message)
    if found < current:
        message = f"{where} have version {found}, this Holdfast needs version {current}: run `holdfast schema upgrade`"
        raise SchemaMismatch(message)
