"""Errors as problem details (RFC 9457): one form for every answer that is not a success.

`type` is `urn:holdfast:error:` and the name of the error in Python, in kebab case: `LeaseLost` is `lease-lost`.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any, Final

import msgspec
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from holdfast.errors import (
    ArgumentsError,
    ConfigError,
    HoldfastError,
    JobCancelled,
    JobFailed,
    LeaseLost,
    NotFound,
    OutcomeUnknown,
    PayloadError,
    StoreError,
    TransactionExpired,
    UniqueConflict,
    Unsupported,
    VersionConflict,
)
from holdfast.server.state import state_of

_logger = logging.getLogger("holdfast.server")
_PREFIX: Final = "urn:holdfast:error:"
MEDIA_TYPE: Final = "application/problem+json"
_RETRY_AFTER: Final = "1"  # seconds
_STATUSES: Final[tuple[tuple[type[HoldfastError], int], ...]] = (  # the first that fits
    (NotFound, 404),
    (ArgumentsError, 422),
    (PayloadError, 422),
    (ConfigError, 422),
    (Unsupported, 501),
    (JobFailed, 409),
    (JobCancelled, 409),
    (UniqueConflict, 409),
    (LeaseLost, 409),
    (VersionConflict, 409),
    (TransactionExpired, 409),
    (StoreError, 503),
)
# What an error of the store says may name hosts, paths and statements: it is logged, and the caller gets this.
_UNAVAILABLE: Final = "the store cannot be used at the moment, and nothing was written: repeat the request"
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
        return self.name.replace("-", " ").capitalize()

    def as_json(self) -> bytes:
        """Return the problem as JSON."""
        core = ProblemDetails(_PREFIX + self.name, self.title, self.status, self.detail)
        return msgspec.json.encode({**msgspec.structs.asdict(core), **self.members})


def problem_of(error: BaseException) -> Problem:
    """Return the problem for an error; what the caller need not know is logged here."""
    if isinstance(error, Problem):
        return error
    if isinstance(error, HTTPException):
        name = HTTPStatus(error.status_code).phrase.lower().replace(" ", "-")
        return Problem(error.status_code, name, error.detail, headers=error.headers)
    if isinstance(error, StoreError):
        _logger.warning("a request failed: %s", error)
        detail = _UNKNOWN if isinstance(error, OutcomeUnknown) else _UNAVAILABLE
        return Problem(503, _name_of(error), detail, members=_members_of(error), headers={"retry-after": _RETRY_AFTER})
    if isinstance(error, HoldfastError):
        status = next((status for kind, status in _STATUSES if isinstance(error, kind)), 500)
        return Problem(status, _name_of(error), str(error), members=_members_of(error))
    _logger.error("a request failed", exc_info=error)
    return Problem(500, "internal-error", _BROKEN)


def _name_of(error: HoldfastError) -> str:
    return re.sub(r"(?<!^)(?=[A-Z])", "-", type(error).__name__).lower()


def _members_of(error: HoldfastError) -> dict[str, Any]:
    return {name: getattr(error, name) for name in _MEMBERS if getattr(error, name, None)}


def respond(request: Request, problem: Problem) -> Response:
    """Return the answer: a page for a browser outside of the API, if there is one, else JSON."""
    page = state_of(request).problem_page
    is_api = "/v1/" in request.url.path
    if page is not None and not is_api and "text/html" in request.headers.get("accept", ""):
        response = page(request, problem)
        response.headers.update(problem.headers)
        return response
    return Response(problem.as_json(), problem.status, headers=problem.headers, media_type=MEDIA_TYPE)


async def answer_error(request: Request, error: Exception) -> Response:
    """Answer an exception that a route has raised; as Starlette calls it."""
    return respond(request, problem_of(error))
