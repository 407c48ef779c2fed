"""The parts of an app that a server for operators and for callers over HTTP needs."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, cast

from holdfast.app.tokens import SyncTokens, Tokens

if TYPE_CHECKING:
    from holdfast.app.app import App


class ServerParts:
    """Access tokens."""

    @cached_property
    def tokens(self) -> Tokens:
        """Create, verify, list and revoke access tokens."""
        return Tokens(cast("App", self))


class SyncServerParts:
    """The same with blocking calls; they are attributes of `app.sync`."""

    tokens: SyncTokens
