"""Read what may be damaged: rows that something else than Holdfast has written."""

from __future__ import annotations

import msgspec

_decode_headers = msgspec.json.Decoder(dict[str, str]).decode


def readable(payload: bytes) -> str:
    """Return the text of a payload; what is no UTF-8 becomes a text that is no JSON, so that it is refused as such."""
    try:
        return payload.decode()
    except UnicodeDecodeError as error:
        return f"not UTF-8: {error}"


def headers_of(text: bytes | str | None) -> dict[str, str] | None:
    """Return the headers; None if they cannot be read: a job is worth running without them."""
    if not text:
        return None
    try:
        return _decode_headers(text)
    except (msgspec.MsgspecError, UnicodeError):
        return None
