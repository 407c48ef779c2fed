from __future__ import annotations

import functools
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum, IntEnum, StrEnum
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple, Optional, TypedDict
from uuid import UUID, uuid4

import msgspec
import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.errors import ArgumentsError, ConfigError, PayloadError
from holdfast.runtime.payload import MAX_PAYLOAD
from holdfast.runtime.signature import Signature

if TYPE_CHECKING:
    from somewhere import Unseen  # type: ignore[import-not-found]


class Ctx:
    pass


class Colour(Enum):
    RED = "red"


class Size(IntEnum):
    BIG = 3


class Word(StrEnum):
    YES = "yes"


@dataclass
class Line:
    sku: str
    count: int = 1
    tags: set[str] = field(default_factory=set)


class Order(msgspec.Struct):
    id: int
    lines: list[Line] = []
    parent: Optional[Order] = None  # noqa: UP045 - a type that holds itself


class Point(NamedTuple):
    x: int
    y: int


class Options(TypedDict, total=False):
    colour: Colour
    at: datetime


class Model(pydantic.BaseModel):
    id: UUID
    at: datetime
    tags: set[str] = set()


class Strict(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(strict=True)
    id: UUID
    pair: tuple[int, int]


NOW = datetime(2030, 1, 2, 3, 4, 5, tzinfo=UTC)


def carry(handler: Callable[..., Any], *args: Any, **kwargs: Any) -> tuple[list[Any], dict[str, Any]]:
    signature = Signature.of(handler, context_type=Ctx)
    return signature.decode(signature.encode(args, kwargs))


def one(hint: Any, value: Any) -> Any:
    """Carry one value to a parameter with this annotation."""

    def handler(x): ...

    handler.__annotations__ = {"x": hint}
    args, kwargs = carry(handler, x=value)
    assert args == []
    return kwargs["x"]


def charge(order_id: int, note: str = "", *, urgent: bool = False) -> None: ...


def with_rest(a: int, /, b: str, *rest: float, flag: bool = False) -> None: ...


def with_extra(a: int, **extra: int) -> None: ...


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


class Arbitrary:
    pass


@pytest.mark.parametrize(
    ("hint", "value", "reason"),
    [
        (int, "5", "x: Expected `int`, got `str`"),
        (int, True, "Expected `int`, got `bool`"),
        (list[int], [1, "2"], "Expected `int`, got `str`"),
        (Annotated[int, msgspec.Meta(ge=0)], -1, "Expected `int` >= 0"),
        (Literal["a"], "b", "Invalid enum value"),
        (float, float("nan"), "no form in JSON"),
        (Any, {"a": [1.0, float("inf")]}, r"x\.a\[1\]: inf has no form in JSON"),
        (float | None, float("nan"), "no form in JSON"),
        (Any, 2**64, "beyond 64 bits"),
        (int, -(2**63) - 1, "beyond 64 bits"),
        (str, "a\0", "NUL"),
        (Any, ["a\0"], r"x\[0\]: a text with a NUL"),
        (Any, {"a\0": 1}, "NUL"),
        (str, "\ud800", "lone surrogate"),
        (Any, {"a": "\udfff"}, "lone surrogate"),
        (datetime, datetime(2030, 1, 1), "no time zone"),  # noqa: DTZ001
        (datetime, "2030-01-01T00:00:00", "no time zone"),
        (time, time(1), "no time zone"),
        (Options, {"at": datetime(2030, 1, 1)}, r"x\.at: .* no time zone"),  # noqa: DTZ001
        (Any, NOW, "datetime would arrive as str: annotate it as datetime"),
        (Any, UUID(int=1), "UUID would arrive as str"),
        (str, UUID(int=1), "UUID would arrive as str"),
        (Any, Line("a"), "Line would arrive as dict"),
        (Any, Point(1, 2), "Point would arrive as list"),
        (Any, Colour.RED, "Colour would arrive as str"),
        (Any, Model(id=UUID(int=1), at=NOW), "Model would arrive as dict"),
        (Decimal, Decimal("NaN"), "not finite"),
        (Any, b"x", "annotate it as bytes"),
        (str, b"x", "annotate it as bytes"),
        (bytes, "abcd", "base64"),
        (Any, {1}, r"set\[int\]"),
        (list[int], {1}, r"set\[int\]"),
        (Any, {1: 2}, r"annotate the keys, for example dict\[int, Any\]"),
        (dict[str, int], {1: 2}, "annotate the keys"),
        (Options, {"color": "red"}, "no such key"),
        (Any, deep(70), "nested deeper than 64"),
        (Any, deep(5000), "nested deeper than 64"),
        (Any, CIRCLE, "nested deeper than 64"),
        (Any, Arbitrary(), "Arbitrary cannot be carried as JSON"),
        (Any, [Arbitrary()], r"x\[0\]: Arbitrary cannot be carried"),
        (Any, {None: 1}, "make it str"),
        (dict[float, int], {float("inf"): 1}, "no form in JSON"),
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
        (charge, (1, "x", True), {}, "3 positional arguments were given, at most 2 are taken"),
        (charge, (1,), {"order_id": 1}, "order_id was given twice"),
        (charge, ("1",), {}, "order_id: Expected `int`, got `str`"),
        (with_rest, (), {}, "the argument a is missing"),
        (with_rest, (), {"a": 1, "b": "x"}, "there is no parameter a"),
        (with_rest, (1,), {}, "the argument b is missing"),
        (with_rest, (1, "b", 2.5), {"b": "x"}, "b was given twice"),
        (with_rest, (1, "b", "c"), {}, "rest: Expected `float`, got `str`"),
        (with_rest, (1, "b", float("nan")), {}, r"rest\[0\]: nan has no form"),
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
    with pytest.raises(PayloadError, match=r"262,145 bytes as JSON, at most 262,144 .* pass a reference"):
        signature.encode((1, "x" * (MAX_PAYLOAD - frame + 1)), {})


# --- handlers ---------------------------------------------------------------------------------------------------------


def first(ctx: Ctx, order_id: int) -> None: ...
def optional(order_id: int, ctx: Ctx | None = None) -> None: ...
def named(order_id: int, *, context: Optional[Ctx]) -> None: ...  # noqa: UP045
def annotated(order_id: int, ctx: Annotated[Ctx, "given"]) -> None: ...
def after_rest(order_id: int, *rest: int, ctx: Ctx) -> None: ...


@pytest.mark.parametrize(
    ("handler", "name"),
    [(first, "ctx"), (optional, "ctx"), (named, "context"), (annotated, "ctx"), (after_rest, "ctx"), (charge, None)],
)
def test_the_context_is_found_by_its_annotation_and_does_not_travel(handler, name):
    signature = Signature.of(handler, context_type=Ctx)
    assert signature.context == name
    assert signature.encode((5,), {}) == '[[],{"order_id":5}]'
    assert "tx" not in signature.text


def test_a_context_imported_for_type_checkers_alone_is_found():
    def handler(order_id: int, ctx: Elsewhere) -> None: ...

    class Elsewhere:
        pass

    assert Signature.of(handler, context_type=Elsewhere).context == "ctx"


def test_the_context_cannot_be_passed():
    with pytest.raises(ArgumentsError, match="the worker hands over"):
        Signature.of(optional, context_type=Ctx).encode((), {"order_id": 1, "ctx": None})


def twice(a: Ctx, b: Ctx) -> None: ...
def by_position(ctx: Ctx, /) -> None: ...
def before_rest(ctx: Ctx, *rest: int) -> None: ...
def unseen(x: Unseen) -> None: ...
def arbitrary(x: list[Arbitrary]) -> None: ...
def calls(x: Callable[[], None]) -> None: ...
def ambiguous(x: list[int] | set[int]) -> None: ...
def raw(x: msgspec.Raw) -> None: ...


@dataclass
class Holder:
    inner: dict[str, Arbitrary]


def nested(x: Holder) -> None: ...


@pytest.mark.parametrize(
    ("handler", "remedy"),
    [
        (twice, "drop one"),
        (by_position, "keyword-only"),
        (before_rest, "keyword-only"),
        (unseen, "parameter x: .*import or define it at the top"),
        (arbitrary, "parameter x: .*Arbitrary cannot be made from JSON.*pass an id"),
        (nested, "Arbitrary cannot be made from JSON"),
        (calls, "Callable cannot be made from JSON"),
        (ambiguous, "more than one array-like"),
        (raw, "RawType"),
    ],
)
def test_a_handler_whose_arguments_cannot_travel_is_refused_with_the_remedy(handler, remedy):
    with pytest.raises(ConfigError, match=remedy):
        Signature.of(handler, context_type=Ctx)


def test_an_unannotated_parameter_takes_any_plain_value():
    def handler(a, b: object = None): ...

    assert carry(handler, [1], b={"x": 1}) == ([], {"a": [1], "b": {"x": 1}})


class Service:
    def method(self, order_id: int) -> None: ...

    def __call__(self, line: Line) -> None: ...


@functools.wraps(charge)
def wrapped(*args: Any, **kwargs: Any) -> None: ...


def test_methods_callable_objects_partials_and_wrappers_are_read():
    assert carry(Service().method, 1) == ([], {"order_id": 1})
    assert carry(Service(), Line("a")) == ([], {"line": Line("a")})
    assert carry(functools.partial(charge, note="x"), 1) == ([], {"order_id": 1})
    assert carry(wrapped, 1, "n") == ([], {"order_id": 1, "note": "n"})


def test_pydantic_is_not_imported_unless_it_is_used():
    program = (
        "import sys\n"
        "from holdfast.runtime.signature import Signature\n"
        "def f(x: list[int]): ...\n"
        "Signature.of(f).decode(Signature.of(f).encode(([1],), {}))\n"
        "assert 'pydantic' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
