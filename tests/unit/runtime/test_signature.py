from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Annotated, Any, Literal
from uuid import UUID, uuid4

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.runtime.signature_samples import (
    NOW,
    Arbitrary,
    Colour,
    Line,
    Model,
    Options,
    Order,
    Point,
    Size,
    Strict,
    Word,
    carry,
    charge,
    one,
    with_extra,
    with_rest,
)

from holdfast.errors import ArgumentsError, PayloadError
from holdfast.runtime.payload import MAX_PAYLOAD
from holdfast.runtime.signature import Signature

# --- the wire ---------------------------------------------------------------------------------------------------------


def test_arguments_travel_by_name():
    signature = Signature.of(charge)
    assert signature.encode((7, "x"), {"urgent": True}) == '[[],{"order_id":7,"note":"x","urgent":true}]'
    assert signature.encode((), {"order_id": 7}) == '[[],{"order_id":7}]'


def test_a_default_does_not_travel_so_the_workers_own_applies():
    assert Signature.of(charge).decode('[[],{"order_id":7}]') == ([], {"order_id": 7})


def test_positional_only_and_rest_travel_by_position():
    signature = Signature.of(with_rest)
    assert signature.encode((1, "b"), {"flag": True}) == '[[1],{"b":"b","flag":true}]'
    assert signature.encode((1, "b", 2.5, 3.5), {}) == '[[1,"b",2.5,3.5],{}]'


@pytest.mark.parametrize(
    ("args", "kwargs"), [((1, "b"), {}), ((1,), {"b": "b"}), ((1, "b", 2.5), {"flag": True}), ((1, "b", 2.5, 3.5), {})]
)
def test_a_call_by_position_arrives_as_the_same_call(args, kwargs):
    def bound(*args, **kwargs):
        def record(a, /, b, *rest, flag=False):
            return a, b, rest, flag

        return record(*args, **kwargs)

    sent_args, sent_kwargs = carry(with_rest, *args, **kwargs)
    assert bound(*sent_args, **sent_kwargs) == bound(*args, **kwargs)


def test_extra_keywords_travel_and_are_typed():
    assert carry(with_extra, 1, b=2) == ([], {"a": 1, "b": 2})
    with pytest.raises(ArgumentsError, match="b: Expected `int`, got `str`"):
        carry(with_extra, 1, b="2")


@pytest.mark.parametrize("name", ["self", "cls", "_private", "kwargs", "type"])
def test_a_parameter_may_have_any_name(name):
    namespace: dict[str, Any] = {}
    exec(f"def handler({name}: int): ...", namespace)  # noqa: S102
    assert carry(namespace["handler"], **{name: 1}) == ([], {name: 1})


# --- types ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("hint", "value"),
    [
        (int, 2**64 - 1),
        (int, -(2**63)),
        (float, 1.5),
        (bool, True),
        (str, "ä😀\n"),
        (str, "\\u0000"),
        (None, None),
        (int | None, None),
        (int | str, "x"),
        (Any, [1, {"a": None}]),
        (datetime, NOW),
        (datetime, NOW.astimezone()),
        (date, date(2030, 1, 2)),
        (time, time(1, 2, tzinfo=UTC)),
        (timedelta, timedelta(days=1, microseconds=5)),
        (UUID, uuid4()),
        (Decimal, Decimal("1.10")),
        (Colour, Colour.RED),
        (Size, Size.BIG),
        (Literal["a", "b"], "a"),
        (bytes, b"\0\xff"),
        (set[int], {1, 2}),
        (set[bytes], {b"a"}),
        (frozenset[str], frozenset({"a"})),
        (dict[int, str], {1: "a"}),
        (dict[UUID, int], {uuid4(): 1}),
        (tuple[int, str], (1, "a")),
        (Sequence[int], [1]),
        (Point, Point(1, 2)),
        (Line, Line("a", 2, {"x"})),
        (Order, Order(1, [Line("a")], Order(2))),
        (list[Order], [Order(1)]),
        (Options, {"colour": Colour.RED, "at": NOW}),
        (Model, Model(id=uuid4(), at=NOW, tags={"a"})),
        (Strict, Strict(id=uuid4(), pair=(1, 2))),
        (list[Model] | None, [Model(id=uuid4(), at=NOW)]),
        (Annotated[int, msgspec.Meta(ge=0)], 0),
    ],
)
def test_a_value_arrives_as_the_annotated_type(hint, value):
    seen = one(hint, value)
    assert seen == value
    assert type(seen) is type(value)


def test_json_forms_are_taken_for_richer_types():
    assert one(UUID, "00000000-0000-0000-0000-000000000001") == UUID(int=1)
    assert one(datetime, "2030-01-02T03:04:05Z") == NOW
    assert one(Line, {"sku": "a"}) == Line("a")
    assert one(set[int], [1, 1]) == {1}
    assert one(float, 1) == 1.0
    assert one(str, Word.YES) == "yes"


json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(codec="utf-8", exclude_characters="\0")),
    lambda inner: (
        st.lists(inner) | st.dictionaries(st.text(st.characters(codec="utf-8", exclude_characters="\0")), inner)
    ),
    max_leaves=20,
)
rich_values = st.recursive(
    json_values
    | st.binary()
    | st.datetimes()
    | st.uuids()
    | st.floats()
    | st.integers()
    | st.text(st.characters(codec=None)),
    lambda inner: st.lists(inner) | st.dictionaries(st.text() | st.integers(), inner) | st.tuples(inner),
    max_leaves=10,
)


@given(json_values)
def test_any_json_value_arrives_unchanged(value):
    assert one(Any, value) == value


@given(rich_values)
def test_any_value_arrives_equal_or_is_refused(value):
    def listed(item: Any) -> Any:
        if isinstance(item, (list, tuple)):
            return [listed(part) for part in item]
        return {key: listed(part) for key, part in item.items()} if isinstance(item, dict) else item

    try:
        seen = one(Any, value)
    except ArgumentsError:
        return
    assert seen == listed(value)


# --- refusals ---------------------------------------------------------------------------------------------------------


def deep(levels: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(levels):
        value = [value]
    return value


CIRCLE: list[Any] = []
CIRCLE.append(CIRCLE)


@pytest.mark.parametrize(
    ("hint", "value", "reason"),
    [
        (int, "5", "x: Expected `int`, got `str`"),
        (int, True, "Expected `int`, got `bool`"),
        (list[int], [1, "2"], "Expected `int`, got `str`"),
        (Annotated[int, msgspec.Meta(ge=0)], -1, "Expected `int` >= 0"),
        (Literal["a"], "b", "Invalid enum value"),
        (float, float("nan"), "JSON cannot represent"),
        (Any, {"a": [1.0, float("inf")]}, r"x\.a\[1\]: JSON cannot represent inf"),
        (float | None, float("nan"), "JSON cannot represent"),
        (Any, 2**64, "does not fit into 64 bits"),
        (int, -(2**63) - 1, "does not fit into 64 bits"),
        (str, "a\0", "NUL"),
        (Any, ["a\0"], r"x\[0\]: a string with a NUL"),
        (Any, {"a\0": 1}, "NUL"),
        (str, "\ud800", "lone surrogate"),
        (Any, {"a": "\udfff"}, "lone surrogate"),
        (datetime, datetime(2030, 1, 1), "no time zone"),  # noqa: DTZ001
        (datetime, "2030-01-01T00:00:00", "no time zone"),
        (time, time(1), "no time zone"),
        (Options, {"at": datetime(2030, 1, 1)}, r"x\.at: .* no time zone"),  # noqa: DTZ001
        (Any, NOW, "datetime would arrive as str: annotate the parameter as datetime"),
        (Any, UUID(int=1), "UUID would arrive as str"),
        (str, UUID(int=1), "UUID would arrive as str"),
        (Any, Line("a"), "Line would arrive as dict"),
        (Any, Point(1, 2), "Point would arrive as list"),
        (Any, Colour.RED, "Colour would arrive as str"),
        (Any, Model(id=UUID(int=1), at=NOW), "Model would arrive as dict"),
        (Decimal, Decimal("NaN"), "not finite"),
        (Any, b"x", "annotate the parameter as bytes"),
        (str, b"x", "annotate the parameter as bytes"),
        (bytes, "abcd", "base64"),
        (Any, {1}, r"set\[int\]"),
        (list[int], {1}, r"set\[int\]"),
        (Any, {1: 2}, r"annotate the keys, for example dict\[int, Any\]"),
        (dict[str, int], {1: 2}, "annotate the keys"),
        (Options, {"color": "red"}, "no such key"),
        (Any, deep(70), "nested deeper than 64"),
        (Any, deep(5000), "nested deeper than 64"),
        (Any, CIRCLE, "nested deeper than 64"),
        (Any, Arbitrary(), "Arbitrary cannot be encoded as JSON"),
        (Any, [Arbitrary()], r"x\[0\]: Arbitrary cannot be encoded"),
        (Any, {None: 1}, "convert it to a str"),
        (dict[float, int], {float("inf"): 1}, "JSON cannot represent"),
    ],
)
def test_a_value_that_would_not_arrive_is_refused_with_the_reason(hint, value, reason):
    with pytest.raises(ArgumentsError, match=reason):
        one(hint, value)


@pytest.mark.parametrize("levels", [1, 60])
def test_a_flat_enough_value_is_carried(levels):
    assert one(Any, deep(levels)) == deep(levels)


@pytest.mark.parametrize(
    ("handler", "args", "kwargs", "reason"),
    [
        (charge, (), {}, "the argument order_id is missing"),
        (charge, (), {"order_id": 1, "nope": 2}, "there is no parameter nope"),
        (charge, (1, "x", True), {}, "3 positional arguments were passed, at most 2 are allowed"),
        (charge, (1,), {"order_id": 1}, "order_id was passed twice"),
        (charge, ("1",), {}, "order_id: Expected `int`, got `str`"),
        (with_rest, (), {}, "the argument a is missing"),
        (with_rest, (), {"a": 1, "b": "x"}, "there is no parameter a"),
        (with_rest, (1,), {}, "the argument b is missing"),
        (with_rest, (1, "b", 2.5), {"b": "x"}, "b was passed twice"),
        (with_rest, (1, "b", "c"), {}, "rest: Expected `float`, got `str`"),
        (with_rest, (1, "b", float("nan")), {}, r"rest\[0\]: JSON cannot represent nan"),
        (with_extra, (), {"b": 1}, "the argument a is missing"),
    ],
)
def test_a_call_that_does_not_fit_is_refused_with_task_parameter_and_signature(handler, args, kwargs, reason):
    signature = Signature.of(handler, task="billing.charge")
    with pytest.raises(ArgumentsError, match=reason) as raised:
        signature.encode(args, kwargs)
    assert "task 'billing.charge'" in str(raised.value)
    assert f"the signature is {signature.text}" in str(raised.value)


def test_the_signature_is_shown_as_a_person_writes_it():
    assert Signature.of(charge).text == "charge(order_id: int, note: str = '', *, urgent: bool = False)"


@pytest.mark.parametrize(
    ("handler", "payload"),
    [
        (charge, "nonsense"),
        (charge, "{}"),
        (charge, "[[]]"),
        (charge, "[[1],{}]"),
        (charge, "[[],{}]"),
        (charge, '[[],{"order_id":"1"}]'),
        (charge, '[[],{"order_id":1,"gone":2}]'),
        (with_rest, "[[],{}]"),
        (with_rest, '[[1],{"b":"x","gone":1}]'),
        (with_rest, '[["1"],{"b":"x"}]'),
        (with_rest, '[[1,"b",2.5],{"b":"x"}]'),
        (with_extra, '[[1],{"a":1}]'),
        (charge, '[[],{"order_id":1,"note":"' + "ä" * (MAX_PAYLOAD // 2) + '"}]'),
    ],
)
def test_a_payload_that_does_not_fit_is_refused(handler, payload):
    with pytest.raises(PayloadError, match="task '") as raised:
        Signature.of(handler).decode(payload)
    assert not isinstance(raised.value, ArgumentsError)


@given(st.text() | json_values.map(lambda value: msgspec.json.encode(value).decode()))
def test_no_payload_raises_anything_but_a_payload_error(payload):
    for handler in (charge, with_rest, with_extra):
        try:
            Signature.of(handler).decode(payload)
        except PayloadError:
            continue


def test_a_payload_of_the_largest_size_is_carried_and_one_byte_more_is_refused():
    signature = Signature.of(charge)
    frame = len(signature.encode((1, ""), {}))
    largest = signature.encode((1, "x" * (MAX_PAYLOAD - frame)), {})
    assert len(signature.decode(largest)[1]["note"]) == MAX_PAYLOAD - frame
    with pytest.raises(
        PayloadError, match=r"262,145 bytes as JSON, more than the limit of 262,144: .* pass a reference"
    ):
        signature.encode((1, "x" * (MAX_PAYLOAD - frame + 1)), {})
