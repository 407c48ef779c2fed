from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated, Any, Literal
from uuid import UUID

import pytest
from msgspec import ValidationError

from holdfast.errors import ConfigError, PayloadError
from holdfast.runtime.payload import (
    MAX_HEADER_BYTES,
    MAX_PAYLOAD,
    decode_result,
    decoder_for,
    encode_headers,
    encode_result,
    encode_value,
)


@dataclass
class Report:
    id: UUID
    at: datetime
    tags: set[str]


REPORT = Report(UUID(int=1), datetime(2030, 1, 1, tzinfo=UTC), {"a"})


def test_a_decoder_is_made_once_for_a_type():
    assert decoder_for(Report) is decoder_for(Report)


def test_literals_of_equal_values_have_decoders_of_their_own():
    assert decoder_for(Literal[1]).decode("1") == 1
    with pytest.raises(ValidationError):
        decoder_for(Literal[True]).decode("1")


def test_an_annotation_without_a_hash_has_a_decoder():
    assert decoder_for(Annotated[int, []]).decode("1") == 1


def test_no_result_is_kept_as_none():
    assert encode_result(None) is None
    assert decode_result(None) is None


def test_a_plain_result_is_read_back():
    value = {"a": [1, 2.5, None, "ä"]}
    assert decode_result(encode_result(value)) == value


def test_an_object_is_read_back_with_its_type():
    text = encode_result(REPORT)
    assert decode_result(text, Report) == REPORT
    assert decode_result(text)["tags"] == ["a"]


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (float("nan"), "JSON cannot represent"),
        ({"a": [float("inf")]}, r"at a\[0\]: JSON cannot represent inf"),
        (datetime(2030, 1, 1), "no time zone"),  # noqa: DTZ001
        (b"x", "bytes"),
        ({1, 2}, "set"),
        ({1: 2}, "key 1"),
        ("a\0", "NUL"),
        ("\ud800", "surrogate"),
        (2**64, "64 bits"),
        (object(), "object cannot be encoded"),
    ],
)
def test_a_result_that_cannot_be_kept_is_refused(value, reason):
    with pytest.raises(PayloadError, match=reason):
        encode_result(value)


def test_a_result_has_a_largest_size():
    assert encode_result("x" * (MAX_PAYLOAD - 2)) is not None
    with pytest.raises(PayloadError, match="pass a reference"):
        encode_result("x" * (MAX_PAYLOAD - 1))


@pytest.mark.parametrize(
    ("text", "kind"), [("{", Any), ('"x"', int), ('"x"', object), ('"' + "x" * MAX_PAYLOAD + '"', Any)]
)
def test_a_result_that_cannot_be_read_is_refused(text, kind):
    with pytest.raises(PayloadError):
        decode_result(text, kind)


def test_headers_are_copied_and_none_are_none():
    headers = {"traceparent": "00-ab", "Tenant.id": "ä"}
    carried = encode_headers(headers)
    assert carried == headers
    assert carried is not headers
    assert encode_headers(None) is None
    assert encode_headers({}) is None


@pytest.mark.parametrize(
    ("headers", "reason"),
    [
        ({"a": 1}, "pass str"),
        ({"a": "x\0"}, "NUL"),
        ({"a": "\ud800"}, "surrogate"),
        ({f"h{number}": "" for number in range(65)}, "limit of 64"),
        ({"a": "ä" * (MAX_HEADER_BYTES // 2)}, "limit of 16,384"),
    ],
)
def test_headers_that_cannot_be_carried_are_refused(headers: Any, reason):
    with pytest.raises(PayloadError, match=reason):
        encode_headers(headers)


@pytest.mark.parametrize("name", ["", "a b", 5, "x" * 200])
def test_a_header_name_must_be_a_name(name: Any):
    with pytest.raises(ConfigError, match="header name"):
        encode_headers({name: "x"})


def test_headers_up_to_the_limits_are_carried():
    assert encode_headers({"a": "x" * (MAX_HEADER_BYTES - 1)}) is not None
    assert encode_headers({f"h{number}": "" for number in range(64)}) is not None


@dataclass
class Attachment:
    data: bytes
    tags: set[str]
    sizes: dict[int, int]


@pytest.mark.parametrize(
    ("value", "says"),
    [
        ({"data": b"x"}, "at data: bytes would arrive as a string: pass a string, or pass a dataclass"),
        ({"tags": {1}}, "at tags: a set would arrive as a list: pass a sorted list, or pass a dataclass"),
        (
            {"sizes": {1: 2}},
            r"at sizes\[1\]: the key 1 is not a string and would arrive as one: convert the keys to str, or pass a",
        ),
    ],
)
def test_where_nothing_can_be_annotated_no_remedy_says_so(value, says):
    with pytest.raises(PayloadError, match=says) as refused:
        encode_value(value, "the payload of event 'placed'")
    assert "annotate" not in str(refused.value)
    assert "whose field has that type" in str(refused.value)


def test_the_remedy_works_where_nothing_can_be_annotated():
    attachment = Attachment(b"x", {"a"}, {1: 2})
    assert decoder_for(Attachment).decode(encode_value(attachment, "the payload")) == attachment
