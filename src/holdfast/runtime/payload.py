"""The JSON wire format: encoder, decoders, results, headers and size limits."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, cast

import msgspec

from holdfast.errors import PayloadError
from holdfast.model.names import check_name
from holdfast.runtime.text import clean
from holdfast.runtime.values import UNKNOWN, Refused, check, is_model

if TYPE_CHECKING:
    from collections.abc import Mapping

MAX_PAYLOAD = 256 * 1024
MAX_HEADERS = 64
MAX_HEADER_BYTES = 16 * 1024

_UNKEPT = "!"  # no JSON value starts with this character
_REMEDY = "store the data elsewhere (a file, a table, an object store) and pass a reference to it"


def _to_json(value: Any) -> Any:
    if is_model(cast("object", type(value))):
        return value.model_dump(mode="json", by_alias=True)
    raise TypeError(f"{type(value).__qualname__} cannot be encoded as JSON")


def _from_json(cls: Any, value: Any) -> Any:
    if is_model(cls):
        # From JSON, not from the parsed value: only then a strict model accepts a string as a UUID.
        return cls.model_validate_json(msgspec.json.encode(value))
    raise TypeError(f"{cls!r} cannot be decoded from JSON")


encode_json = msgspec.json.Encoder(enc_hook=_to_json).encode
encode_sorted = msgspec.json.Encoder(enc_hook=_to_json, order="deterministic").encode


def decoder_for(annotation: Any) -> msgspec.json.Decoder[Any]:
    """Return a decoder to the annotated type; raise msgspec's error if the type cannot be decoded."""
    try:
        return _kept_decoder(annotation)
    except TypeError:  # msgspec's own, or an annotation that has no hash
        return _new_decoder(annotation)


def _new_decoder(annotation: Any) -> msgspec.json.Decoder[Any]:
    return msgspec.json.Decoder(annotation, dec_hook=_from_json)


_kept_decoder = lru_cache(maxsize=256)(_new_decoder)  # making one takes longer than decoding a small payload
decode_json: Final = _new_decoder(Any).decode
"""Decodes plain values."""


def check_size(size: int, what: str) -> None:
    """Raise `PayloadError` if a payload is too large."""
    if size > MAX_PAYLOAD:
        raise PayloadError(f"{what} is {size:,} bytes as JSON, more than the limit of {MAX_PAYLOAD:,}: {_REMEDY}")


def size_of(text: str) -> int:
    """Return the size of a string in UTF-8 bytes; a lone surrogate counts as three."""
    return len(text) if text.isascii() else len(text.encode(errors="surrogatepass"))


def encode_value(value: Any, what: str) -> str:
    """Return a value as JSON; raise `PayloadError` if it cannot be encoded.

    The type to which it will be decoded is unknown here. So bytes, sets and keys that are not strings are rejected,
    unless they are fields of an object, whose class defines their types. Dates, UUIDs, decimals and objects are stored
    in their JSON form; decoding to their type restores them.
    """
    try:
        check(value, UNKNOWN)
        data = encode_json(value)
    except Refused as refused:
        place = f"at {refused.place.removeprefix('.')}: " if refused.place else ""
        raise PayloadError(f"{what} cannot be encoded: {place}{refused.unannotated}") from None
    except Exception as error:
        raise PayloadError(f"{what} cannot be encoded: {error}") from error
    check_size(len(data), what)
    return data.decode()


def encode_result(value: Any) -> str | None:
    """Return the result of a handler as JSON, None for None; raise `PayloadError` if it cannot be encoded."""
    return None if value is None else encode_value(value, "the result")


def encode_result_or_reason(value: Any) -> str | None:
    """Return the result as JSON or, if it cannot be encoded, the reason in a form that `decode_result` raises.

    The handler has run: a result that cannot be encoded is no reason to run it again.
    """
    try:
        return encode_result(value)
    except PayloadError as error:
        return _UNKEPT + clean(str(error), 1024)


def unkept_reason(text: str | None) -> str | None:
    """Return why a result could not be encoded, if that was stored in its place; else None."""
    return text.removeprefix(_UNKEPT) if text is not None and text.startswith(_UNKEPT) else None


def decode_result(text: str | None, type: Any = Any) -> Any:  # noqa: A002 - the name that msgspec uses
    """Return a stored result decoded to `type`; plain JSON values by default."""
    if text is None:
        return None
    reason = unkept_reason(text)
    if reason is not None:
        raise PayloadError(reason)
    check_size(size_of(text), "the result")
    try:
        return decoder_for(type).decode(text)
    except Exception as error:
        raise PayloadError(
            f"the result cannot be decoded as {type!r}: {error}; read it as what it is, as in result(dict), or "
            "as a plain value with app.job(job_id).result()"
        ) from error


def encode_headers(headers: Mapping[str, str] | None) -> dict[str, str] | None:
    """Return a copy of the headers, None if there are none; raise `PayloadError` if they are invalid or too large."""
    if not headers:
        return None
    if len(headers) > MAX_HEADERS:
        raise PayloadError(f"there are {len(headers)} headers, more than the limit of {MAX_HEADERS}: use arguments")
    size = 0
    for name, value in headers.items():
        check_name("header", name)
        if not isinstance(cast("object", value), str):
            raise PayloadError(f"header {name!r} is {value!r}, not a string: pass str(…) of it")
        try:
            check(str(value), UNKNOWN)
        except Refused as refused:
            raise PayloadError(f"header {name!r}: {refused.reason}") from None
        size += len(name) + size_of(value)
    if size > MAX_HEADER_BYTES:
        raise PayloadError(f"the headers are {size:,} bytes, more than the limit of {MAX_HEADER_BYTES:,}: {_REMEDY}")
    return dict(headers)
