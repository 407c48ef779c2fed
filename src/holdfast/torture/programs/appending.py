"""Every way to append: one event, many at once, in a transaction of the caller, and again after a lost reply."""

from __future__ import annotations

import asyncio
import itertools
import os
import random
from collections.abc import Awaitable, Callable, Sequence
from typing import Any
from uuid import UUID

from holdfast.errors import OutcomeUnknown, StoreUnavailable, VersionConflict
from holdfast.model.event import Appended
from holdfast.torture.history import now_us
from holdfast.torture.recorder import recorder
from holdfast.torture.streams.app import app
from holdfast.torture.streams.names import MAIN, POISON, POISONED, SLOW, STUMBLES, USUAL, WEIGHTS
from holdfast.torture.streams.records import AppendAnswered, AppendCalled, AppendedAt, AppendRefused, AppendUnknown
from holdfast.torture.work.connecting import connected

_ONE, _MANY, _EXPECTED, _COMMITTED, _ROLLED_BACK = range(5)
_WAYS = (_ONE, _MANY, _EXPECTED, _COMMITTED, _ROLLED_BACK)
_WEIGHTS = (25, 40, 20, 8, 7)
_IN_KAFKA = {_EXPECTED: _ONE, _COMMITTED: _MANY, _ROLLED_BACK: _MANY}  # where events have no versions
_GIVE_UP = 0.2  # of the calls with a lost reply are not repeated
_PAUSE = 0.3  # seconds before a repeat
_REPEATS = 200
_CALLS = 8  # per second
_MOST = 200
_ELSEWHERE = 0.1  # of the events of a batch go to another category
_POISONS = 0.04
_STUMBLES = 0.01
_SLOWS = 0.002
_RARER = 20  # times rarer, where a failure affects the whole batch
_PER_STREAM = 10  # events, in the category whose streams may be parked
_STREAMS = 300
Event = dict[str, Any]


class Appending:
    """Appends drawn events and records each call."""

    def __init__(self, name: str, chance: random.Random, luck: random.Random, *, rate: float, events: int) -> None:
        """`chance` draws what is appended, `luck` the reaction to errors: what is drawn must not depend on errors."""
        self._name = f"{name}-{os.getpid()}"
        self._chance = chance
        self._luck = luck
        self._numbers = itertools.count(1)
        self._drawn = itertools.count(1)
        self._most = max(2, min(_MOST, round(2 * rate / _CALLS)))
        self._streams = {
            category: max(8, events * weight // 100 // _PER_STREAM) if category == POISONED else _STREAMS
            for category, weight in WEIGHTS.items()
        }
        self._versions: dict[tuple[str, str], int] = {}
        self.appended = 0
        self.calls = 0
        self.conflicts = 0

    async def once(self) -> None:
        """Append one drawn batch."""
        (category,) = self._chance.choices(list(WEIGHTS), list(WEIGHTS.values()))
        (way,) = self._chance.choices(_WAYS, _WEIGHTS)
        if "join a transaction" in app.backend.capabilities.refusals:
            way = _IN_KAFKA.get(way, way)
        # For consumers of other categories, each event is a separate transaction.
        most = self._most if category == MAIN else max(2, self._most // 4)
        match way:
            case _ if way == _ONE:
                await self._persist([self._draw(category)])
            case _ if way == _EXPECTED:
                await self._expecting(category)
            case _ if way == _MANY:
                await self._persist(self._batch(category, most))
            case _:
                await self._using(self._batch(category, most), commits=way == _COMMITTED)

    # --- drawing ----------------------------------------------------------------------------------------------------

    def _batch(self, category: str, most: int) -> list[Event]:
        events: list[Event] = []
        for _ in range(self._chance.randint(2, most)):
            where = category
            if self._chance.random() < _ELSEWHERE:
                where = self._chance.choice(list(WEIGHTS))
            events.append(self._draw(where))
        return events

    def _draw(self, category: str) -> Event:
        chance = self._chance
        stream = f"s-{chance.randrange(self._streams[category])}"
        drawn = chance.random()
        rarely = 1 / _RARER if category == MAIN else 1.0
        stumbles = rarely * _STUMBLES
        if category == POISONED and drawn < _POISONS:
            name = POISON
        elif drawn > 1 - stumbles:
            name = STUMBLES
        else:
            name = SLOW if drawn > 1 - stumbles - rarely * _SLOWS else USUAL
        event_id = str(UUID(int=chance.getrandbits(128), version=4))
        return {
            "stream": stream,
            "name": name,
            "payload": {"n": next(self._drawn)},
            "event_id": event_id,
            "category": category,
        }

    # --- ways to append ---------------------------------------------------------------------------------------------

    async def _expecting(self, category: str) -> None:
        """Append to a stream with the last known version; on a conflict read the version, and append again."""
        event = self._draw(category)
        key = category, event["stream"]
        for _ in range(_REPEATS):
            event["expected_version"] = self._versions.get(key, 0)
            try:
                await self._persist([event])
            except VersionConflict:
                self.conflicts += 1
                self._versions[key] = await self._version(*key)
            else:
                return

    async def _version(self, category: str, stream: str) -> int:
        """Read the version of a stream."""
        while True:
            try:
                page = await app.read(category, stream=stream, backwards=True, limit=1)
            except (StoreUnavailable, OutcomeUnknown):
                await asyncio.sleep(_PAUSE * self._luck.random())  # jitter
            else:
                return page.events[0].version if page.events else 0

    async def _using(self, events: list[Event], *, commits: bool) -> None:
        """Join a transaction of the caller, and commit it or roll it back."""
        call = self._called(events, using=True)
        try:
            with connected() as connection:
                places = await app.append_many(events[0]["category"], events, using=connection.raw)
                if not commits:
                    connection.rollback()
                    recorder.write(AppendRefused(at_us=now_us(), call=call, error="rolled back"))
                    return
                try:
                    connection.commit()
                except OutcomeUnknown as error:
                    recorder.write(AppendUnknown(at_us=now_us(), call=call, error=type(error).__name__))
                    return
        except (StoreUnavailable, OutcomeUnknown) as error:  # before the commit: it is rolled back
            recorder.write(AppendRefused(at_us=now_us(), call=call, error=type(error).__name__))
            return
        self._answered(call, events, places)

    async def _persist(self, events: list[Event]) -> None:
        """Append, and repeat while the store is unavailable or the reply was lost; the ids are the caller's."""

        async def append() -> Sequence[Appended]:
            return await app.append_many(events[0]["category"], events)

        for _ in range(_REPEATS):
            if await self._is_over(events, append):
                return
            await asyncio.sleep(_PAUSE * self._luck.random())  # jitter

    async def _is_over(self, events: list[Event], append: Callable[[], Awaitable[Sequence[Appended]]]) -> bool:
        call = self._called(events)
        try:
            places = await append()
        except VersionConflict:
            recorder.write(AppendRefused(at_us=now_us(), call=call, error="conflict"))
            raise
        except StoreUnavailable as error:
            recorder.write(AppendRefused(at_us=now_us(), call=call, error=type(error).__name__))
            return False
        except OutcomeUnknown as error:
            recorder.write(AppendUnknown(at_us=now_us(), call=call, error=type(error).__name__))
            return not error.is_repeatable or self._luck.random() < _GIVE_UP
        self._answered(call, events, places)
        return True

    # --- recording --------------------------------------------------------------------------------------------------

    def _called(self, events: list[Event], *, using: bool = False) -> str:
        call = f"{self._name}-{next(self._numbers)}"
        self.calls += 1
        ids = tuple(event["event_id"] for event in events)
        recorder.write(AppendCalled(at_us=now_us(), call=call, events=ids, using=using))
        return call

    def _answered(self, call: str, events: list[Event], places: Sequence[Appended]) -> None:
        appended = tuple(
            AppendedAt(
                event["event_id"], event["category"], place.partition_id, place.position, place.version, place.is_new
            )
            for event, place in zip(events, places, strict=True)
        )
        recorder.write(AppendAnswered(at_us=now_us(), call=call, places=appended))
        for place, event in zip(appended, events, strict=True):
            self._versions[place.category, event["stream"]] = place.version
        self.appended += len(events)
