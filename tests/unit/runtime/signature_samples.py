"""Types and handlers that the tests of the signature share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import Enum, IntEnum, StrEnum
from typing import Any, NamedTuple, Optional, TypedDict
from uuid import UUID

import msgspec
import pydantic

from holdfast.runtime.signature import Signature


class Ctx:
    pass


class Arbitrary:
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
