"""The types of problems: the names of the errors in Python, in kebab case, and those of the server itself.

The `type` of a problem is a URL that leads to what is said here about it: `/v1/problems/lease-lost`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

import msgspec

from holdfast import errors
from holdfast.errors import HoldfastError

_STATUSES: Final[tuple[tuple[type[HoldfastError], int], ...]] = (  # the first that fits
    (errors.NotFound, 404),
    (errors.PayloadError, 422),
    (errors.ConfigError, 422),
    (errors.Unsupported, 501),
    (errors.JobFailed, 409),
    (errors.JobCancelled, 409),
    (errors.UniqueConflict, 409),
    (errors.LeaseLost, 409),
    (errors.VersionConflict, 409),
    (errors.TransactionExpired, 409),
    (errors.StoreError, 503),
)
_OWN: Final = {
    "bad-request": (400, "The request cannot be read."),
    "client-disconnected": (400, "The client closed the connection before the answer."),
    "invalid-idempotency-key": (400, "An Idempotency-Key has 1 to 255 characters of ASCII."),
    "malformed-body": (400, "The body is not JSON."),
    "unauthenticated": (401, "The caller is unknown: send a token, in `Authorization: Bearer …`."),
    "forbidden": (403, "The caller is known, and may not do this: a token with another scope is needed."),
    "foreign-origin": (403, "The change was sent by a page of another site."),
    "method-not-allowed": (405, "The path has other methods: see the header `Allow`."),
    "request-timeout": (408, "The body did not arrive in time."),
    "stale-page": (409, "The page showed an older state than there is: nothing was done."),
    "still-held": (409, "The lease is still held by a worker that is alive: nothing was done."),
    "body-too-large": (413, "The body is too large: send less at once."),
    "unsupported-media-type": (415, "The body has another type than the operation reads."),
    "id-reused": (422, "A job has this id and is another call: choose another id."),
    "invalid-form": (422, "A form has a field that is not allowed, or lacks one."),
    "invalid-request": (422, "A field of the query or the body is not allowed; the detail names it."),
    "search": (422, "The search cannot be understood."),
    "unknown-verb": (422, "There is no such action."),
    "internal-error": (500, "An error of the server, which it has logged."),
    "timeout": (503, "The store took too long: repeat the request with the same ids."),
}


class ProblemType(msgspec.Struct, frozen=True):
    """What a type of problem means, and with which status it is answered."""

    name: str
    title: str
    status: int
    description: str


def status_of(kind: type[HoldfastError]) -> int:
    """Return the status with which an error is answered."""
    return next((status for known, status in _STATUSES if issubclass(kind, known)), 500)


def name_of(kind: type[HoldfastError]) -> str:
    """Return the name of an error, as a problem has it; of one that is not public, that of its nearest base."""
    return next(name for known in kind.__mro__ if (name := _in_kebab_case(known.__name__)) in PROBLEM_TYPES)


def title_of(name: str) -> str:
    """Return the name in words."""
    return name.replace("-", " ").capitalize()


def _in_kebab_case(name: str) -> str:
    return re.sub(r"(?<!^)(?=[A-Z])", "-", name).lower()


def _all() -> Mapping[str, ProblemType]:
    kinds = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, HoldfastError)]
    found = {_in_kebab_case(kind.__name__): (status_of(kind), _said_of(kind)) for kind in kinds} | _OWN
    return {name: ProblemType(name, title_of(name), *of) for name, of in sorted(found.items())}


def _said_of(kind: type[HoldfastError]) -> str:
    return " ".join((kind.__doc__ or "").partition("\n\n")[0].split())


PROBLEM_TYPES: Final = _all()
"""All types, by name."""
