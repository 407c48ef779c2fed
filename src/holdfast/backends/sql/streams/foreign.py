"""Categories whose events another system keeps: their homes, their heads, and the shares of their consumers."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import msgspec

from holdfast.backends.sql.steps import Ask, each, records, rows, run, together
from holdfast.backends.sql.streams import consumer_admin, consumers
from holdfast.backends.sql.streams.categories import find_categories, make_categories, require_category
from holdfast.backends.sql.streams.consumers import Granted, grant_names, place_names
from holdfast.backends.sql.streams.starts import heads
from holdfast.backends.sql.streams.trimming import last_passed
from holdfast.errors import ConfigError
from holdfast.model.allocation import Grant, ShareState
from holdfast.model.event import StoredEvent
from holdfast.store.foreign_events import MovedCategory, PartitionEnds
from holdfast.store.steps import Runner, Steps
from holdfast.store.stream_values import Category, Fetched, KnownStart, ParkedEvent, Subscription


def _open(name: str, home: str, partitions: int) -> Steps[Category]:
    found = yield from find_categories([name])
    if name not in found:
        yield from make_categories([name], partitions)
        yield from run("set_home", category=name, home=home, partitions=partitions)
        return (yield from require_category(name))
    known = found[name]
    if known.home != home:
        where = "in this store" if known.home is None else f"in {known.home}"
        raise ConfigError(f"the events of category {name!r} are {where}, not in {home}: a category has one home")
    return (yield from _set_home(known, home, partitions)) if known.partitions < partitions else known


def _set_home(known: Category, home: str, partitions: int) -> Steps[Category]:
    """Set the home of a category, and add the partitions that it lacks."""
    yield from run("set_home", category=known.category, home=home, partitions=partitions)
    added = range(known.partitions, partitions)
    yield from each("add_head", [{"category_id": known.category_id, "partition_id": number} for number in added])
    return known._replace(home=home, partitions=partitions)


def _note_ends(category: Category, ends: Sequence[PartitionEnds]) -> Steps[None]:
    place = {"category_id": category.category_id}
    noted = [
        {**place, "partition_id": number, "position_id": end.head, "trimmed": end.trimmed}
        for number, end in enumerate(ends)
    ]
    yield from each("note_head", noted)


def _reset(consumer: str, to: KnownStart, moved: Sequence[MovedCategory]) -> Steps[bool]:
    views = (yield from consumer_admin.consumers()) if moved else []
    for category, ends in moved:
        name = category.category
        places = {view.name for view in views if any(share.share.category == name for share in view.shares)}
        if others := sorted(places - {consumer}):
            raise ConfigError(
                f"the events of category {name!r} are gone, and it is now {category.home}. Other consumers have "
                f"positions among the former events: {', '.join(others)}. Forget these first (holdfast consumer forget "
                "NAME); they begin again as their settings say"
            )
        yield from _note_ends(category, ends)
    if not (yield from consumer_admin.reset(consumer, to)):
        return False
    for category, _ in moved:
        known = yield from require_category(category.category)
        yield from _set_home(known, category.home or "", category.partitions)
    return True


def _look(grant: Grant, streams: Collection[str], limit: int) -> Steps[Fetched]:
    names = grant_names(grant)
    of_share = {name: names[name] for name in ("consumer", "category", "partition_id")}
    granted, is_parked = yield from together(Ask("find_granted", names, Granted), Ask("has_parked", of_share))
    if not granted:
        return Fetched([], is_lost=True)
    (share,) = granted
    parked, retries = [], []
    if is_parked:
        place = place_names(grant, share)
        parked = (yield from rows("parked_among", **place, streams=sorted(streams), handled=[])) if streams else []
        retries = yield from rows("list_kept_retries", **place, limit=limit)
    return Fetched(
        events=[],
        state=ShareState(share.state),
        position=share.position_id,
        replay_until=share.replay_until,
        losses=share.losses,
        parked_streams=frozenset(name for (name,) in parked),
        retries=tuple(ParkedEvent(msgspec.json.decode(text, type=StoredEvent), attempts) for attempts, text in retries),
    )


def _passed(category: str) -> Steps[dict[int, int]]:
    found: dict[int, int] = {}
    for head in (yield from heads(category)):
        found[head.partition_id] = yield from last_passed(head)
    return found


class SqlForeignEvents:
    """`ForeignEvents` on a SQL store."""

    def __init__(self, runner: Runner) -> None:
        self._runner = runner

    async def open(self, name: str, home: str, partitions: int) -> Category:  # noqa: D102 - the port states the contracts
        return await self._runner.write(lambda: _open(name, home, partitions))

    async def find(self, names: Collection[str]) -> list[Category]:  # noqa: D102
        return list((await self._runner.look(lambda: find_categories(names))).values())

    async def all(self) -> list[Category]:  # noqa: D102
        return await self._runner.look(lambda: records(Category, "list_homes"))

    async def note_ends(self, category: Category, ends: Sequence[PartitionEnds]) -> None:  # noqa: D102
        await self._runner.write(lambda: _note_ends(category, ends))

    async def subscribe(self, consumer: str, subscription: Subscription, start: KnownStart) -> bool:  # noqa: D102
        return await self._runner.write(lambda: consumers.subscribe(consumer, subscription, start))

    async def reset(  # noqa: D102
        self, consumer: str, to: KnownStart, moved: Sequence[MovedCategory] = ()
    ) -> bool:
        return await self._runner.write(lambda: _reset(consumer, to, moved))

    async def look(self, grant: Grant, streams: Collection[str], *, limit: int) -> Fetched:  # noqa: D102
        return await self._runner.look(lambda: _look(grant, streams, limit))

    async def passed(self, category: Category) -> dict[int, int]:  # noqa: D102
        return await self._runner.look(lambda: _passed(category.category))
