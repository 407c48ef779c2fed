"""Categories and their partitions."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import groupby
from operator import attrgetter

from holdfast.backends.sql.steps import each, records
from holdfast.backends.sql.streams.starts import Head, heads
from holdfast.errors import CategoryNotFound, ConfigError
from holdfast.model.event import DEFAULT_PARTITIONS
from holdfast.store.steps import Steps
from holdfast.store.stream_values import Category, CategoryView


def find_categories(names: Iterable[str]) -> Steps[dict[str, Category]]:
    """Return those of these categories that exist."""
    found = yield from records(Category, "find_categories", categories=sorted(names))
    return {row.category: row for row in found}


def no_category(name: str) -> CategoryNotFound:
    """Return the error for a category that does not exist."""
    return CategoryNotFound(f"there is no category {name!r}: the first append to it creates it")


def require_category(name: str) -> Steps[Category]:
    """Return a category; raise `CategoryNotFound` if it does not exist."""
    found = yield from find_categories([name])
    if name not in found:
        raise no_category(name)
    return found[name]


def make_categories(names: Iterable[str], partitions: int = DEFAULT_PARTITIONS) -> Steps[dict[str, Category]]:
    """Create categories, and return them; one that another transaction creates meanwhile stays as it is."""
    listed = sorted(names)
    yield from each("add_category", [{"category": name, "partitions": partitions} for name in listed])
    made = yield from find_categories(listed)
    places = [(row.category_id, number) for row in made.values() for number in range(row.partitions)]
    yield from each("add_head", [{"category_id": place[0], "partition_id": place[1]} for place in sorted(places)])
    return made


def open_category(name: str, partitions: int | None) -> Steps[CategoryView]:
    """Return a category; create it if it does not exist."""
    if not (yield from find_categories([name])):
        yield from make_categories([name], DEFAULT_PARTITIONS if partitions is None else partitions)
    (view,) = yield from categories(name)
    if partitions not in {None, view.partitions}:
        message = (
            f"category {name!r} has {view.partitions} partitions, which cannot be changed: "
            f"append to a new category if it must have {partitions}"
        )
        raise ConfigError(message)
    return view


def categories(name: str | None = None) -> Steps[list[CategoryView]]:
    """List all categories, or one."""
    found = yield from heads(name)
    return [_view(list(of_one)) for _, of_one in groupby(found, attrgetter("category"))]


def _view(found: list[Head]) -> CategoryView:
    ends, trimmed = tuple(head.position_id for head in found), tuple(head.trimmed for head in found)
    return CategoryView(found[0].category, found[0].partitions, ends, trimmed)
