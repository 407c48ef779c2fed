"""Errors as problem details (RFC 9457): one form for every answer that is not a success.

`type` is a URL of this server that leads to what is said of the type: `/v1/problems/lease-lost`.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any, Final

import msgspec
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from holdfast.errors import HoldfastError, OutcomeUnknown, StoreError
from holdfast.server.problem_types import PROBLEM_TYPES, name_of, status_of, title_of
from holdfast.server.state import state_of

_logger = logging.getLogger("holdfast.server")
PATH: Final = "/v1/problems"
MEDIA_TYPE: Final = "application/problem+json"
_RETRY_AFTER: Final = "1"  # seconds
# What an error of the store says may name hosts, paths and statements: it is logged, and the caller gets this.
_UNAVAILABLE: Final = "the store cannot be used at the moment: repeat the request, with the same ids if it has any"
_UNKNOWN: Final = "the store failed while committing: repeat the request with the same ids, and nothing is done twice"
_BROKEN: Final = "an internal error, which the server has logged"
_MEMBERS: Final = ("job_id", "job_ids", "task", "unique_key", "expected", "actual", "reason", "error_class")


class ProblemDetails(msgspec.Struct, frozen=True):
    """A problem as it is sent; further members depend on the type."""

    type: str
    title: str
    status: int
    detail: str


class Problem(Exception):  # noqa: N818 - the term of RFC 9457
    """An answer that is not a success: raised by routes, sent by `respond`."""

    def __init__(
        self,
        status: int,
        name: str,
        detail: str,
        *,
        members: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(detail)
        self.status = status
        self.name = name
        self.detail = detail
        self.members = dict(members or {})
        self.headers = dict(headers or {})

    @property
    def title(self) -> str:
        """The name in words."""
        return title_of(self.name)

    def as_json(self, root: str) -> bytes:
        """Return the problem as JSON; `root` is the path under which the server is mounted."""
        core = ProblemDetails(f"{root}{PATH}/{self.name}", self.title, self.status, self.detail)
        return msgspec.json.encode({**msgspec.structs.asdict(core), **self.members})


def problem_of(error: BaseException) -> Problem:
    """Return the problem for an error; what the caller need not know is logged here."""
    if isinstance(error, Problem):
        return error
    if isinstance(error, HTTPException):
        name = HTTPStatus(error.status_code).phrase.lower().replace(" ", "-")
        known = name if name in PROBLEM_TYPES else "bad-request"
        return Problem(error.status_code, known, error.detail, headers=error.headers)
    if isinstance(error, StoreError):
        _logger.warning("a request failed: %s", error)
        detail, again = _UNKNOWN if isinstance(error, OutcomeUnknown) else _UNAVAILABLE, {"retry-after": _RETRY_AFTER}
        return Problem(503, name_of(type(error)), detail, members=_members_of(error), headers=again)
    if isinstance(error, HoldfastError):
        return Problem(status_of(type(error)), name_of(type(error)), str(error), members=_members_of(error))
    _logger.error("a request failed", exc_info=error)
    return Problem(500, "internal-error", _BROKEN)


def _members_of(error: HoldfastError) -> dict[str, Any]:
    return {name: getattr(error, name) for name in _MEMBERS if getattr(error, name, None)}


def respond(request: Request, problem: Problem) -> Response:
    """Return the answer: a page for a browser outside of the API, if there is one, else JSON."""
    page = state_of(request).problem_page
    is_api = "/v1/" in f"{request.url.path}/"
    if page is not None and not is_api and "text/html" in request.headers.get("accept", ""):
        response = page(request, problem)
        response.headers.update(problem.headers)
        return response
    root, prefix = request.scope.get("root_path", ""), state_of(request).settings.prefix
    root = root if root.endswith(prefix) else root + prefix  # before the mount of the prefix, and in it
    return Response(problem.as_json(root), problem.status, headers=problem.headers, media_type=MEDIA_TYPE)


async def answer_error(request: Request, error: Exception) -> Response:
    """Answer an exception that a route has raised; as Starlette calls it."""
    return respond(request, problem_of(error))
