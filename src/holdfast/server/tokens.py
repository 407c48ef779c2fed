"""The tokens of a store, as the server needs them: verified by their text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol, cast

if TYPE_CHECKING:
    from holdfast.app.app import App


class StoredToken(Protocol):
    """A token that a store knows."""

    @property
    def name(self) -> str:
        """What it is called in lists and in the audit log."""
        ...

    @property
    def scopes(self) -> Sequence[str]:
        """What it allows: `enqueue`, `work`, `work:QUEUE`, `read`, `operate`, `admin`."""
        ...


class TokenStore(Protocol):
    """Where tokens are verified."""

    async def verify(self, text: str) -> StoredToken | None:
        """Return the token with this text; None if there is none, or it was revoked or has expired."""
        ...


class NoTokens:
    """The tokens of an app that keeps none."""

    async def verify(self, text: str) -> StoredToken | None:  # noqa: ARG002 - as the protocol has it
        """Return None."""
        return None


def tokens_of(app: App) -> TokenStore:
    """Return the tokens of an app."""
    return cast("TokenStore", getattr(app, "tokens", None) or NoTokens())
