"""The types of fields that requests have in common: what they allow is in the OpenAPI document, and is checked."""

from __future__ import annotations

from typing import Annotated, Any, Final

import msgspec
from msgspec import Meta

from holdfast.model.names import MAX_NAME

_NAME: Final = r"^[A-Za-z_][A-Za-z0-9_.:\-]*$"
UUID: Final = r"[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}"
IDEMPOTENCY_KEY: Final = r"^[!-~]([ -~]{0,253}[!-~])?$"
"""What HTTP lets through as the value of a header, at most 255 characters."""
_PRINTED: Final = r"^[^\u0000]*$"

Name = Annotated[str, Meta(pattern=_NAME, max_length=MAX_NAME, description="A name of letters, digits and _ . : -")]
Id = Annotated[str, Meta(pattern=f"^{UUID}$", description="A UUID, in the usual form.")]
Key = Annotated[str, Meta(min_length=1, max_length=MAX_NAME, pattern=_PRINTED)]
Text = Annotated[str, Meta(max_length=16_384, pattern=_PRINTED)]
Stream = Annotated[str, Meta(min_length=1, max_length=MAX_NAME, pattern=r"^[^\u0000-\u001f\u007f]+$")]
Fence = Annotated[str, Meta(pattern=r"^[0-9]{1,19}$", description="An increasing number, as text: it may exceed 2^53.")]
MAX_FENCE: Final = 2**63 - 1
"""The largest number that a store holds. A larger fence was never issued, so its lease is answered as lost."""
Duration = Annotated[float, Meta(ge=0, le=100 * 365 * 86_400, description="Seconds.")]
LeaseLength = Annotated[float, Meta(ge=2, le=43_200, description="Seconds from the moment of the request.")]
LONGEST_WAIT: Final = 30.0
Wait = Annotated[float, Meta(ge=0, le=LONGEST_WAIT, description="Seconds to wait for an answer, at most 30.")]
Limit = Annotated[int, Meta(ge=1, le=500)]
Cursor = Annotated[str, Meta(max_length=4096, pattern=_PRINTED, description="From the page before.")]
Headers = dict[Name, Text]
Json = msgspec.Raw
"""Any JSON, passed on as it is."""
NULL: Final = msgspec.Raw(b"null")


def no_json() -> Json:
    """Return the default of a field of any JSON."""
    return NULL


PATH_FIELDS: Final[dict[str, Any]] = {
    "job_id": Id,
    "operation_id": Id,
    "token": Name,
    "queue": Name,
    "task": Name,
    "schedule": Name,
    "consumer": Name,
    "category": Name,
    "stream": Stream,
    "worker": Name,
    "problem": Name,
}
"""The type of each parameter in a path."""


class Request(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The base of all bodies and queries: a field that is not known is refused."""


class NoFields(Request, frozen=True):
    """A body or a query without fields."""


NOTHING: Final = NoFields()
