"""JSON on the wire: the encoder and decoders, results, headers, and how large they may be."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

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

_UNKEPT = "!"  # no JSON begins so
_REMEDY = "store the bulk elsewhere (a file, a table, an object store) and pass a reference to it"


def _to_json(value: Any) -> Any:
    if is_model(cast("object", type(value))):
        return value.model_dump(mode="json", by_alias=True)
    raise TypeError(f"{type(value).__qualname__} cannot be carried as JSON")


def _from_json(cls: Any, value: Any) -> Any:
    if is_model(cls):
        # From JSON, not from the parsed value: a strict model takes a text for a UUID only there.
        return cls.model_validate_json(msgspec.json.encode(value))
    raise TypeError(f"{cls!r} cannot be read from JSON")


encode_json = msgspec.json.Encoder(enc_hook=_to_json).encode


def decoder_for(hint: Any) -> msgspec.json.Decoder[Any]:
    """Return a decoder to the annotated type; raises what msgspec raises if there can be none."""
    return msgspec.json.Decoder(hint, dec_hook=_from_json)


def check_size(size: int, what: str) -> None:
    """Refuse a text of more bytes than the store is asked to carry."""
    if size > MAX_PAYLOAD:
        raise PayloadError(f"{what} has {size:,} bytes as JSON, at most {MAX_PAYLOAD:,} are carried: {_REMEDY}")


def size_of(text: str) -> int:
    """Return the size of a text in bytes of UTF-8; a lone surrogate counts as three."""
    return len(text) if text.isascii() else len(text.encode(errors="surrogatepass"))


def encode_value(value: Any, what: str) -> str:
    """Return a value as JSON; refuse what cannot be carried.

    Nobody knows yet how it will be read, so bytes, sets and keys that are not texts are refused, unless they are
    fields of an object, whose class says what they are. Dates, UUIDs, decimals and objects are kept in their JSON
    form; decoding to a type makes them whole again.
    """
    try:
        check(value, UNKNOWN)
        data = encode_json(value)
    except Refused as refused:
        place = f"at {refused.place.removeprefix('.')}: " if refused.place else ""
        raise PayloadError(f"{what} cannot be kept: {place}{refused.unannotated}") from None
    except Exception as error:
        raise PayloadError(f"{what} cannot be kept: {error}") from error
    check_size(len(data), what)
    return data.decode()


def encode_result(value: Any) -> str | None:
    """Return the result of a handler as JSON, None for None; refuse what cannot be carried."""
    return None if value is None else encode_value(value, "the result")


def encode_result_or_reason(value: Any) -> str | None:
    """Return the result as JSON or, if it cannot be kept, the reason, which `decode_result` raises.

    The work is done: that its value cannot be written down is no reason to do it again.
    """
    try:
        return encode_result(value)
    except PayloadError as error:
        return _UNKEPT + clean(str(error), 1024)


def unkept_reason(text: str | None) -> str | None:
    """Return why a result could not be kept, if that is what was written in its place."""
    return text.removeprefix(_UNKEPT) if text is not None and text.startswith(_UNKEPT) else None


def decode_result(text: str | None, type: Any = Any) -> Any:  # noqa: A002 - as msgspec calls it
    """Return a kept result as `type`; plain JSON values by default."""
    if text is None:
        return None
    reason = unkept_reason(text)
    if reason is not None:
        raise PayloadError(reason)
    check_size(size_of(text), "the result")
    try:
        return decoder_for(type).decode(text)
    except Exception as error:
        raise PayloadError(f"the result cannot be read as {type!r}: {error}") from error


def encode_headers(headers: Mapping[str, str] | None) -> dict[str, str] | None:
    """Return a copy of the headers, None for none; refuse what cannot be carried."""
    if not headers:
        return None
    if len(headers) > MAX_HEADERS:
        raise PayloadError(f"{len(headers)} headers were given, at most {MAX_HEADERS} are carried: use arguments")
    size = 0
    for name, value in headers.items():
        check_name("header", name)
        if not isinstance(cast("object", value), str):
            raise PayloadError(f"header {name!r} is {value!r}: the value of a header is a text, pass str(...) of it")
        try:
            check(str(value), UNKNOWN)
        except Refused as refused:
            raise PayloadError(f"header {name!r}: {refused.reason}") from None
        size += len(name) + size_of(value)
    if size > MAX_HEADER_BYTES:
        raise PayloadError(f"the headers have {size:,} bytes, at most {MAX_HEADER_BYTES:,} are carried: {_REMEDY}")
    return dict(headers)
