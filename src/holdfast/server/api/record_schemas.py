"""How tokens, the audit log and bulk operations are written and shown."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from holdfast.model.job import JobState
from holdfast.server.api.fields import Duration, Id, Limit, Name, Request, Text

ScopeText = Annotated[str, Meta(pattern=r"^(enqueue|read|operate|admin|work:(\*|[A-Za-z_][A-Za-z0-9_.:\-]*))$")]


class NewTokenRequest(Request, frozen=True):
    """A token to create: its name, what it allows, and after how many seconds it expires."""

    name: Name
    scopes: Annotated[list[ScopeText], Meta(min_length=1, max_length=100)]
    lasts_seconds: Duration | None = None


class NewToken(msgspec.Struct, frozen=True):
    """The text of a new token: it is not stored, and cannot be shown again."""

    name: str
    token: str


class ShownToken(msgspec.Struct, frozen=True):
    """A token, without its text."""

    name: str
    scopes: list[str]
    created_at: datetime
    expires_at: datetime | None


class TokenList(msgspec.Struct, frozen=True):
    """All tokens."""

    tokens: list[ShownToken]


class PageQuery(Request, frozen=True):
    """Which page: that before the id of the last entry of the page before."""

    before: Id | None = None
    limit: Limit = 50


class ShownEntry(msgspec.Struct, frozen=True):
    """An entry of the audit log."""

    id: str
    at: datetime
    who: str
    action: str
    target: str
    detail: str
    origin: str


class AuditPage(msgspec.Struct, frozen=True):
    """Entries of the audit log, the newest first."""

    entries: list[ShownEntry]


class OperationRequest(Request, frozen=True):
    """What to do to all jobs in a state, of a queue, a task, an age and an error. `preview`: only count them.

    Of an error, such as that of a group of `/v1/errors`, numbers and ids do not count.
    """

    action: Literal["retry", "cancel", "delete"]
    state: JobState
    queue: Name | None = None
    task: Name | None = None
    older_than_seconds: Duration = 0.0
    error: Text = ""
    reason: Text = ""
    preview: bool = False


class ShownPreview(msgspec.Struct, frozen=True):
    """How many jobs an operation would change now; `at_least`: there may be more."""

    count: int
    at_least: bool


class ShownOperation(msgspec.Struct, frozen=True):
    """A bulk operation: what it does to which jobs, and its progress."""

    id: str
    action: str
    state: Literal["running", "done", "cancelled"]
    job_state: JobState
    queue: str | None
    task: str | None
    error: str | None
    who: str
    expected: ShownPreview
    looked_at: int
    counts: dict[str, int]
    started_at: datetime
    advanced_at: datetime


class OperationList(msgspec.Struct, frozen=True):
    """Bulk operations, the last started first."""

    operations: list[ShownOperation]
