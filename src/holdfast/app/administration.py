"""The parts of an app that a server for operators and for callers over HTTP needs."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, cast

from holdfast.app.audit import Audit, SyncAudit
from holdfast.app.operations import Operations, SyncOperations
from holdfast.app.tokens import SyncTokens, Tokens

if TYPE_CHECKING:
    from holdfast.app.app import App


class Administration:
    """Access tokens, the audit log and bulk operations."""

    @cached_property
    def tokens(self) -> Tokens:
        """Create, verify, list and revoke access tokens."""
        return Tokens(cast("App", self))

    @cached_property
    def audit(self) -> Audit:
        """Record and list what operators did."""
        return Audit(cast("App", self))

    @cached_property
    def operations(self) -> Operations:
        """Retry, cancel or delete many jobs in the background."""
        return Operations(cast("App", self))


class SyncAdministration:
    """The same with blocking calls; they are attributes of `app.sync`."""

    tokens: SyncTokens
    audit: SyncAudit
    operations: SyncOperations
