"""Bulk operations, and the audit log."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from holdfast.app.audit import AuditEntry
from holdfast.app.operation import OperationPreview, OperationState, OperationView
from holdfast.server.dashboard.formats import number

if TYPE_CHECKING:
    from holdfast.app.app import App

SHOWN: Final = 50


class OperationRow(msgspec.Struct, frozen=True):
    """An operation, and how far it is."""

    view: OperationView

    @property
    def is_running(self) -> bool:
        """Whether it goes on."""
        return self.view.state is OperationState.RUNNING

    @property
    def expected(self) -> str:
        """How many jobs it is about."""
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
