"""Forms: small bodies of `application/x-www-form-urlencoded`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final
from urllib.parse import parse_qsl

import msgspec
from starlette.requests import Request

from holdfast.server.api.bodies import read_bytes
from holdfast.server.problems import Problem

_MOST_BYTES: Final = 64 * 1024
_MOST_FIELDS: Final = 1000


class Form(msgspec.Struct, frozen=True):
    """The fields of a form; one that is repeated, as that of selected rows, has several values."""

    pairs: Sequence[tuple[str, str]]

    def get(self, name: str, default: str = "") -> str:
        """Return the last value of a field."""
        return dict(self.pairs).get(name, default)

    def all(self, name: str) -> list[str]:
        """Return every value of a field."""
        return [value for key, value in self.pairs if key == name]

    @property
    def fields(self) -> Mapping[str, str]:
        """The last value of each field."""
        return dict(self.pairs)

    def require(self, name: str) -> str:
        """Return a field that must have a value; raises `Problem` 422."""
        value = self.get(name)
        if not value:
            raise Problem(422, "invalid-form", f"the form lacks {name}: load the page again, and send it from there")
        return value


async def read_form(request: Request) -> Form:
    """Read the form of a request; raises `Problem` if it is too large, too slow or of another type."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/x-www-form-urlencoded":
        raise Problem(415, "unsupported-media-type", "a form of the dashboard is sent as urlencoded text")
    body = await read_bytes(request, _MOST_BYTES)
    try:
        pairs = parse_qsl(body.decode(), keep_blank_values=True, max_num_fields=_MOST_FIELDS)
    except ValueError as error:  # also of invalid UTF-8
        raise Problem(422, "invalid-form", "the form cannot be read: load the page again") from error
    return Form(pairs)
