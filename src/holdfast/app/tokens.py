"""`app.tokens`: access tokens for callers that are not on this machine.

A token is `holdfast_<id>_<secret>`. The id is made from the token's name, so that a name is used once and a token is
found by one read. Of the secret, 256 random bits, only the SHA-256 is stored: with so many possibilities it needs no
slow hash.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

import msgspec

from holdfast.app.sync import Blocking, Sync
from holdfast.errors import ConfigError, OutcomeUnknown
from holdfast.model.duration import to_span
from holdfast.model.names import check_name
from holdfast.model.scopes import Scope, ScopeKind, allows, parse_scope, parse_scopes
from holdfast.store.records import StoredRecord

if TYPE_CHECKING:
    from holdfast.app.app import App

KIND = "token"
_SECRET_BYTES = 32
_ID_DIGITS = 16
_TEXT = re.compile(rf"holdfast_([0-9a-f]{{{_ID_DIGITS}}})_([0-9a-f]{{{2 * _SECRET_BYTES}}})")
_PAGE = 500


class TokenView(msgspec.Struct, frozen=True):
    """A token, without its secret."""

    name: str
    id: str
    scopes: tuple[Scope, ...]
    created_at: datetime
    expires_at: datetime | None = None
    """None: it is valid until it is revoked."""
    has_expired: bool = False

    def allows(self, kind: ScopeKind, queue: str | None = None) -> bool:
        """Whether its bearer may do this; `work` is asked for one queue."""
        return allows(self.scopes, Scope(kind, queue))


class _KeptToken(msgspec.Struct, frozen=True):
    """The content of a token's record."""

    name: str
    sha256: str
    scopes: list[str]
    lasts_s: float | None = None


_decode = msgspec.json.Decoder(_KeptToken).decode


class Tokens:
    """`app.tokens`: create, verify, list and revoke access tokens."""

    def __init__(self, app: App) -> None:
        self._app = app

    @property
    def sync(self) -> SyncTokens:
        """The same with blocking calls."""
        return SyncTokens(self, self._app.portal)

    async def create(self, name: str, scopes: Iterable[str], *, lasts: float | timedelta | None = None) -> str:
        """Create a token and return its text, which cannot be shown again.

        After `lasts` (seconds, or a timedelta) by the store's clock it is refused. The scopes are `enqueue`,
        `work:<queue>` or `work:*`, `read`, `operate` and `admin`. Raises `ConfigError` for any other, and if there is a
        token of this name.
        """
        token_id = _id_of(check_name("token", name))
        secret = secrets.token_hex(_SECRET_BYTES)
        span = None if lasts is None else to_span(lasts, "lasts").total_seconds()
        kept = _KeptToken(name, _hash_of(secret), [str(scope) for scope in parse_scopes(scopes)], span)
        content = msgspec.json.encode(kept).decode()
        records = (await self._app.opened()).records
        try:
            is_new = await records.put(KIND, token_id, 0, content)
        except OutcomeUnknown:
            found = await records.get(KIND, token_id)
            is_new = found is not None and found.content == content
        if not is_new:
            raise ConfigError(f"there is a token {name!r}: revoke it first, or choose another name")
        return f"holdfast_{token_id}_{secret}"

    async def verify(self, text: str) -> TokenView | None:
        """Return the token of this text; None if it is not a token, has expired, or was revoked.

        Costs one read at most.
        """
        parts = _TEXT.fullmatch(text)
        if parts is None:
            return None
        found = await (await self._app.opened(install=False)).records.get(KIND, parts[1])
        if found is None:
            return None
        if not hmac.compare_digest(_decode(found.content).sha256, _hash_of(parts[2])):
            return None
        token = _view(found)
        return None if token.has_expired else token

    async def list(self) -> Sequence[TokenView]:
        """List all tokens by name, also expired ones, without their secrets."""
        records = (await self._app.opened(install=False)).records
        found = page = await records.page(KIND, _PAGE)
        while len(page) == _PAGE:
            page = await records.page(KIND, _PAGE, after=page[-1].name)
            found = found + page
        return sorted((_view(record) for record in found), key=lambda token: token.name)

    async def revoke(self, name: str) -> bool:
        """Delete a token, which is refused from then on; False if there is none of this name."""
        token_id = _id_of(check_name("token", name))
        records = (await self._app.opened(install=False)).records
        found = await records.get(KIND, token_id)
        return found is not None and await records.delete(KIND, token_id, found.version)


class SyncTokens(Sync[Tokens]):
    """`app.tokens.sync`."""

    create = Blocking(Tokens.create)
    verify = Blocking(Tokens.verify)
    list = Blocking(Tokens.list)
    revoke = Blocking(Tokens.revoke)


def _id_of(name: str) -> str:
    return hashlib.sha256(name.encode()).hexdigest()[:_ID_DIGITS]


def _hash_of(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()


def _view(record: StoredRecord) -> TokenView:
    kept = _decode(record.content)
    scopes = _known(kept.scopes)
    if kept.lasts_s is None:
        return TokenView(kept.name, record.name, scopes, record.touched_at)
    lasts = timedelta(seconds=kept.lasts_s)
    expires_at = record.touched_at + lasts
    return TokenView(kept.name, record.name, scopes, record.touched_at, expires_at, has_expired=record.age >= lasts)


def _known(texts: Sequence[str]) -> tuple[Scope, ...]:
    """Return the scopes that this version knows: one of a newer version allows nothing here."""
    scopes: list[Scope] = []
    for text in texts:
        try:
            scopes.append(parse_scope(text))
        except ConfigError:
            continue
    return tuple(scopes)
