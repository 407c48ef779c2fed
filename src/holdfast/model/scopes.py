"""What the bearer of an access token may do."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum

import msgspec

from holdfast.errors import ConfigError
from holdfast.model.names import check_name

ANY_QUEUE = "*"
_PREFIX = "work:"
_KNOWN = "enqueue, work:<queue>, work:*, read, operate, admin"


class ScopeKind(StrEnum):
    """The kinds of scopes. `operate` includes `read`; `admin` includes all."""

    ENQUEUE = "enqueue"  # enqueue jobs, append events
    WORK = "work"  # claim, extend, finish and release the jobs of a queue
    READ = "read"  # lists, views and metrics
    OPERATE = "operate"  # change jobs, queues, schedules and consumers
    ADMIN = "admin"  # also create and revoke tokens


class Scope(msgspec.Struct, frozen=True, order=True):
    """One thing that is allowed: on one queue or, with `*`, on all of them, if it is `work`."""

    kind: ScopeKind
    queue: str | None = None

    def __str__(self) -> str:
        """Return it as it is written: `read`, or `work:mails`."""
        return f"{_PREFIX}{self.queue}" if self.kind is ScopeKind.WORK else str(self.kind)

    def includes(self, wanted: Scope) -> bool:
        """Whether it allows all that the other one allows."""
        match self.kind:
            case ScopeKind.ADMIN:
                return True
            case ScopeKind.OPERATE:
                return wanted.kind in {ScopeKind.OPERATE, ScopeKind.READ}
            case ScopeKind.WORK:
                return wanted.kind is ScopeKind.WORK and self.queue in {ANY_QUEUE, wanted.queue}
            case _:
                return wanted.kind is self.kind


def parse_scope(text: object) -> Scope:
    """Return the scope of this spelling; raises `ConfigError` for any other."""
    if isinstance(text, str):
        if text.startswith(_PREFIX):
            queue = text.removeprefix(_PREFIX)
            return Scope(ScopeKind.WORK, queue if queue == ANY_QUEUE else check_name("queue", queue))
        if text != ScopeKind.WORK and text in list(ScopeKind):
            return Scope(ScopeKind(text))
    raise ConfigError(f"{text!r} is not a scope: pass one of {_KNOWN}")


def parse_scopes(texts: Iterable[str]) -> tuple[Scope, ...]:
    """Return scopes in a fixed order, each once; raises `ConfigError` if there is none, or one is invalid."""
    if isinstance(texts, str):
        raise ConfigError(f"the scopes {texts!r} are a single string: pass a list, as in [{texts!r}]")
    scopes = tuple(sorted({parse_scope(text) for text in texts}, key=str))
    if not scopes:
        raise ConfigError(f"a token without a scope allows nothing: pass some of {_KNOWN}")
    return scopes


def allows(scopes: Iterable[Scope], wanted: Scope) -> bool:
    """Whether one of the scopes includes the wanted one."""
    return any(scope.includes(wanted) for scope in scopes)
