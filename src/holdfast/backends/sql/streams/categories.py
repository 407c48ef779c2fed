"""Categories and their partitions."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import groupby
from operator import attrgetter

from holdfast.backends.sql.steps import Ask, each, records
from holdfast.backends.sql.streams.starts import Head, heads
from holdfast.errors import CategoryNotFound, ConfigError
from holdfast.model.event import DEFAULT_PARTITIONS, Appended, NewEvent
from holdfast.store.steps import Steps
from holdfast.store.stream_values import Category, CategoryView
from holdfast.store.verbs.placing import answers, as_known, conflict, distinct


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


def append_to_new(
    events: Sequence[NewEvent],
    categories: Mapping[str, Category],
    look: Ask,
    append: Callable[[Sequence[NewEvent], Mapping[str, Category]], Steps[list[Appended]]],
) -> Steps[list[Appended]]:
    """Append events some of whose categories may not exist yet. `look` finds those that are stored already."""
    known = as_known((yield look))
    fresh = [event for event in distinct(events) if event.id not in known]
    missing = {event.category for event in fresh} - set(categories)
    found = yield from find_categories(missing)
    missing -= set(found)
    if missing:
        _check_first_versions([event for event in fresh if event.category in missing])
        found |= yield from make_categories(missing)
    appended = (yield from append(fresh, {**categories, **found})) if fresh else []
    return answers(events, known | {event.id: event for event in appended})


def _check_first_versions(events: Sequence[NewEvent]) -> None:
    """Check expected versions before a category is created: its streams have no events yet."""
    versions: dict[tuple[str, str], int] = defaultdict(int)
    for event in events:
        key = (event.category, event.stream)
        if event.expected_version not in {None, versions[key]}:
            raise conflict(event, versions[key])
        versions[key] += 1


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
