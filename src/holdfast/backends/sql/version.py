"""Whether the tables that were found are those of this Holdfast."""

from __future__ import annotations

from holdfast.errors import SchemaMismatch


def require_version(found: int, current: int, where: str) -> None:
    """Raise `SchemaMismatch`, with the remedy, unless the tables `where` are of the current version; 0 is none."""
    if found > current:
        message = (
            f"{where} are of version {found}, newer than this Holdfast knows ({current}): "
            "upgrade the holdfast package in this environment"
        )
        raise SchemaMismatch(message)
    if found == 0:
        message = f"{where} are missing: run `holdfast schema install`"
        raise SchemaMismatch(message)
    if found < current:
        message = (
            f"{where} are of version {found}, this Holdfast needs version {current}: run `holdfast schema upgrade`"
        )
        raise SchemaMismatch(message)
