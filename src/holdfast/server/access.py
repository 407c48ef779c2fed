"""Who may do what: roles and scopes, from the `authorize` hook, a token, or the address of the caller.

```text
   authorize(request) given ──▶ it alone decides
   Authorization: Bearer … or Basic (any name, the token as the password) ──▶ the scopes of the token
   otherwise, from this machine and for this machine ──▶ admin, unless the server requires tokens
   otherwise ──▶ 401
```

A request counts as local only if its peer has a loopback address, its `Host` is a loopback name, and no proxy has
forwarded it: so neither a page in a browser whose name leads to 127.0.0.1 nor the clients of a proxy that shows itself
become admins. A proxy on this machine that changes `Host` and adds no header looks like a local caller: behind
one, tokens must be required. Every change is checked for its `Origin`.
"""

from __future__ import annotations

import base64
import binascii
import inspect
from collections.abc import Awaitable, Callable, Sequence
from enum import IntEnum
from ipaddress import ip_address
from typing import Final, cast
from urllib.parse import urlsplit

import msgspec
from starlette.requests import HTTPConnection, Request

from holdfast.model.scopes import ANY_QUEUE, Scope, ScopeKind, allows
from holdfast.server.problems import Problem
from holdfast.server.state import state_of
from holdfast.server.time_limit import within_time

SAFE_METHODS: Final = frozenset({"GET", "HEAD", "OPTIONS"})
_FORWARDED: Final = ("forwarded", "x-forwarded-", "x-real-ip", "via")
"""Prefixes of headers that proxies add."""
_OLD_HTTP: Final = "1.0"
"""What nginx before 1.29.7 speaks to the server behind it unless configured otherwise, with no header of a proxy."""


class Role(IntEnum):
    """What a caller may do with existing data; each role includes those before it."""

    READ = 1
    OPERATE = 2
    ADMIN = 3


class Caller(msgspec.Struct, frozen=True):
    """What one request may do, and in whose name it is done.

    `queues` are those that it may claim from; None: every queue. `role` None: it may not read.
    """

    subject: str
    role: Role | None = None
    enqueues: bool = False
    queues: frozenset[str] | None = frozenset()

    @property
    def is_producer(self) -> bool:
        """Whether it enqueues by a separate scope, and not as an administrator, who looks at the jobs of others."""
        return self.enqueues and self.role is not Role.ADMIN

    @property
    def works(self) -> bool:
        """Whether it may claim jobs of any queue."""
        return self.queues is None or bool(self.queues)

    def may_work_on(self, queue: str) -> bool:
        """Whether it may claim and finish jobs of this queue."""
        return self.queues is None or queue in self.queues


def caller_with_role(subject: str, role: Role) -> Caller:
    """Return what a role includes, which is what the scope of that name includes."""
    return caller_with_scopes(subject, [Scope(ScopeKind[role.name])])


def caller_with_scopes(subject: str, scopes: Sequence[Scope]) -> Caller:
    """Return what the scopes of a token allow together."""
    roles = [role for role in Role if allows(scopes, Scope(ScopeKind[role.name]))]
    works_everywhere = allows(scopes, Scope(ScopeKind.WORK, ANY_QUEUE))
    named = frozenset(scope.queue for scope in scopes if scope.kind is ScopeKind.WORK and scope.queue is not None)
    return Caller(
        subject,
        max(roles, default=None),
        enqueues=allows(scopes, Scope(ScopeKind.ENQUEUE)),
        queues=None if works_everywhere else named,
    )


async def caller_of(request: Request) -> Caller:
    """Return what a request may do; raise `Problem` 401 if the caller is unknown, 403 for a foreign `Origin`."""
    check_origin(request)
    known = getattr(request.state, "caller", None)
    if known is not None:
        return cast("Caller", known)
    async with within_time():
        caller = await _authorized(request)
    if state_of(request).settings.read_only:
        caller = _read_only(caller)
    request.state.caller = caller
    return caller


def require(role: Role) -> Callable[[Request], Awaitable[Caller]]:
    """Return a check that a route awaits first: it returns the caller, or raises `Problem` 401 or 403."""

    async def check(request: Request) -> Caller:
        caller = await caller_of(request)
        if caller.role is None or caller.role < role:
            raise forbidden(request, f"this needs the role {role.name.lower()}")
        return caller

    return check


def forbidden(request: Request, why: str) -> Problem:
    """Return the refusal of a request whose caller is known."""
    if state_of(request).settings.read_only:
        why = f"{why}, and this server is read-only"
    return Problem(403, "forbidden", f"{why}: use a token with that scope")


async def _authorized(request: Request) -> Caller:
    state = state_of(request)
    if state.settings.authorize is not None:
        answer = state.settings.authorize(request)
        decided = await answer if inspect.isawaitable(answer) else answer
        if decided is None:
            raise Problem(401, "unauthenticated", "the program around this server refused the request")
        if isinstance(decided, Caller):
            return decided
        role = decided if isinstance(decided, Role) else Role[str(decided).upper()]
        return caller_with_role("authorize", role)
    text = _credentials(request)
    if text is not None:
        await state.opened()
        token = await state.app.tokens.verify(text)
        if token is None:
            raise _unknown_caller(request, "the token is unknown or was revoked")
        return caller_with_scopes(token.name, token.scopes)
    if is_local(request) and not state.settings.requires_token:
        return caller_with_role("local", Role.ADMIN)
    raise _unknown_caller(request, "this address needs a token: send Authorization: Bearer …")


def _unknown_caller(request: Request, detail: str) -> Problem:
    # A browser asks for name and password only if Basic is offered; programs send Bearer.
    offers = 'Basic realm="holdfast"' if "text/html" in request.headers.get("accept", "") else "Bearer"
    return Problem(401, "unauthenticated", detail, headers={"www-authenticate": offers})


def _read_only(caller: Caller) -> Caller:
    role = None if caller.role is None else Role.READ
    return Caller(caller.subject, role)


def _credentials(request: Request) -> str | None:
    """Return the text of the token in the request; None if there is none. Raises `Problem` for another scheme."""
    header = request.headers.get("authorization")
    if header is None:
        return None
    scheme, _, value = header.partition(" ")
    if scheme.lower() == "bearer" and value.strip():
        return value.strip()
    if scheme.lower() == "basic":
        try:
            return base64.b64decode(value, validate=True).decode().partition(":")[2]
        except (binascii.Error, UnicodeDecodeError):
            pass
    raise _unknown_caller(request, "the Authorization header is neither Bearer nor Basic with a token")


# --- where a request comes from ---------------------------------------------------------------------------------------


def is_loopback(host: str | None) -> bool:
    """Whether a host name or address means this machine."""
    if host is None:
        return False
    if host.lower() == "localhost":
        return True
    try:
        return ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def is_local(request: HTTPConnection) -> bool:
    """Whether a request comes from this machine, is meant for it, and was not forwarded."""
    peer = None if request.client is None else request.client.host
    named = urlsplit(f"//{request.headers.get('host', '')}").hostname
    is_old = request.scope.get("http_version") == _OLD_HTTP
    is_forwarded = is_old or any(name.startswith(_FORWARDED) for name in request.headers)
    return is_loopback(peer) and is_loopback(named) and not is_forwarded


def check_origin(request: Request) -> None:
    """Raise `Problem` 403 for a change that a page of another site has sent; a program sends no `Origin`."""
    if request.method in SAFE_METHODS:
        return
    origin = request.headers.get("origin")
    if origin is not None:
        is_own = urlsplit(origin).netloc.lower() == request.headers.get("host", "").lower()
    else:
        is_own = request.headers.get("sec-fetch-site", "none") in {"none", "same-origin"}
    if not is_own:
        raise Problem(403, "foreign-origin", "the change was sent by a page of another site")
