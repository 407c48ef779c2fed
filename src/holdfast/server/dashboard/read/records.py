"""Bulk operations, and the audit log."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

import msgspec

from holdfast.app.audit import AuditEntry
from holdfast.app.operation import OperationPreview, OperationState, OperationView
from holdfast.server.dashboard.formats import number

if TYPE_CHECKING:
    from holdfast.app.app import App

SHOWN: Final = 50
_LOOKED_AT: Final = 500


class OperationRow(msgspec.Struct, frozen=True):
    """An operation and its progress."""

    view: OperationView

    @property
    def is_running(self) -> bool:
        """Whether it is still running."""
        return self.view.state is OperationState.RUNNING

    @property
    def expected(self) -> str:
        """How many jobs it covers."""
        return shown_count(self.view.expected)

    @property
    def done(self) -> int:
        """How many jobs it has looked at, of those expected."""
        return min(self.view.looked_at, self.view.expected.count)


class OperationsScreen(msgspec.Struct, frozen=True):
    """The operations, the last started first; `before` is the id for the next page."""

    operations: tuple[OperationRow, ...]
    before: str | None


async def read_operations(app: App, before: str | None) -> OperationsScreen:
    """Read a page of operations: two statements."""
    found = await app.operations.list(SHOWN + 1, before=before)
    rows = tuple(OperationRow(view) for view in found[:SHOWN])
    return OperationsScreen(rows, rows[-1].view.id if len(found) > SHOWN else None)


async def pauses(app: App, kind: str, paused: Iterable[bool]) -> dict[str, AuditEntry]:
    """Return the latest entry about each thing of a kind that was paused, if it is a pause: by whom, when and why.

    One statement, and none if nothing is paused. It looks at the latest entries only, and the command line makes none.
    """
    if not any(paused):
        return {}
    latest: dict[str, AuditEntry] = {}
    for entry in await app.audit.list(_LOOKED_AT):
        if entry.action in {f"{kind}.pause", f"{kind}.resume"}:
            latest.setdefault(entry.target, entry)
    return {name: entry for name, entry in latest.items() if entry.action.endswith("pause")}


class AuditScreen(msgspec.Struct, frozen=True):
    """The entries, the newest first; `before` is the id for the next page."""

    entries: tuple[AuditEntry, ...]
    before: str | None


async def read_audit(app: App, before: str | None) -> AuditScreen:
    """Read a page of the audit log: one statement."""
    found = await app.audit.list(SHOWN + 1, before=before)
    return AuditScreen(tuple(found[:SHOWN]), found[SHOWN - 1].id if len(found) > SHOWN else None)


def shown_count(preview: OperationPreview) -> str:
    """Return how many jobs; with a plus if counting stopped there."""
    return f"{number(preview.count)}{'+' if preview.at_least else ''}"
