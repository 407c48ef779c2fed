from __future__ import annotations

import functools
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Optional

import msgspec
import pytest
from tests.unit.runtime.signature_samples import (
    Arbitrary,
    Ctx,
    Line,
    carry,
    charge,
)

from holdfast.errors import ArgumentsError, ConfigError
from holdfast.runtime.signature import Signature

if TYPE_CHECKING:
    from somewhere import Unseen  # type: ignore[import-not-found]


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
    with pytest.raises(ArgumentsError, match="the worker passes"):
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
        (twice, "remove one"),
        (by_position, "keyword-only"),
        (before_rest, "keyword-only"),
        (unseen, "parameter x: .*import or define it at the top"),
        (arbitrary, "parameter x: .*Arbitrary cannot be decoded from JSON.*pass an id"),
        (nested, "Arbitrary cannot be decoded from JSON"),
        (calls, "Callable cannot be decoded from JSON"),
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


def unannotated(order_id: int, ctx) -> None: ...
def unannotated_context(order_id: int, context) -> None: ...
def unannotated_positional(ctx, /, *rest: int) -> None: ...


@pytest.mark.parametrize(
    ("handler", "args"), [(unannotated, (5,)), (unannotated_context, (5,)), (unannotated_positional, ())]
)
def test_a_context_that_is_not_annotated_is_told_how_the_worker_would_fill_it_in(handler, args):
    with pytest.raises(ArgumentsError, match=r"is missing: annotate it as Ctx if the worker is to fill it in;"):
        Signature.of(handler, context_type=Ctx).encode(args, {})


@pytest.mark.parametrize("context_type", [Ctx, None])
def test_an_argument_that_is_missing_is_told_nothing_of_contexts(context_type):
    def handler(order_id, *, note) -> None: ...

    with pytest.raises(ArgumentsError, match="the argument note is missing; the signature is"):
        Signature.of(handler, context_type=context_type).encode((5,), {})


def test_a_task_that_takes_its_context_by_another_name_may_have_an_argument_of_that_name():
    def handler(ctx, context: Ctx) -> None: ...

    with pytest.raises(ArgumentsError, match="the argument ctx is missing; the signature is"):
        Signature.of(handler, context_type=Ctx).encode((), {})
