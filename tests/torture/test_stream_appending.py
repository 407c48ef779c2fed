"""What appenders draw: the same seed draws the same events, whatever befalls their calls."""

from __future__ import annotations

import random
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from holdfast.errors import OutcomeUnknown, StoreUnavailable, VersionConflict
from holdfast.model.event import Appended
from holdfast.torture.programs import appender, appending
from holdfast.torture.programs.settings import Produced, ProducerSettings

CALLS = 120
SETTINGS = ProducerSettings(name="a1", parent=1, seed=7, jobs=2000, share=1.0, rate=100.0, lease=2.0)
Trouble = Callable[[int], Exception | None]


class Page(msgspec.Struct):
    events: list[Any]


class Answering:
    """An app without a store; `trouble` says what befalls each call. It keeps what was to be appended, once."""

    def __init__(self, trouble: Trouble) -> None:
        self._trouble = trouble
        self._calls = 0
        self.asked: dict[str, dict[str, Any]] = {}
        self.backend = SimpleNamespace(capabilities=SimpleNamespace(refusals={}))  # a SQL store: it can do all

    async def append_many(self, _: str, events: Sequence[dict[str, Any]], **__: object) -> list[Appended]:
        for event in events:
            drawn = {name: value for name, value in event.items() if name != "expected_version"}
            self.asked.setdefault(event["event_id"], drawn)
        self._suffer(may_conflict="expected_version" in events[0])
        return [Appended(event["event_id"], 1, 0, 1, True) for event in events]

    async def read(self, *_: object, **__: object) -> Page:
        self._suffer()
        return Page([])

    async def close(self) -> None:
        """Nothing is open."""

    def _suffer(self, *, may_conflict: bool = False) -> None:
        self._calls += 1
        error = self._trouble(self._calls)
        if error is not None and (may_conflict or not isinstance(error, VersionConflict)):
            raise error


class Uncommitted:
    """A transaction of the caller's own."""

    raw = None

    def commit(self) -> None:
        """Do nothing."""

    def rollback(self) -> None:
        """Do nothing."""


@contextmanager
def uncommitted() -> Generator[Uncommitted]:
    yield Uncommitted()


class FewCalls:
    """A pace that ends after some calls, however many events they have appended."""

    def __init__(self, _: ProducerSettings) -> None:
        self._left = CALLS

    @property
    def is_over(self) -> bool:
        return not self._left

    async def keep(self, _: Produced) -> None:
        self._left -= 1

    def report(self, _: Produced) -> None:
        """Do nothing."""


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return what an appender of one seed draws, in order, for some trouble."""

    async def draw(trouble: Trouble) -> list[dict[str, Any]]:
        answering = Answering(trouble)
        for module in (appending, appender):
            monkeypatch.setattr(module, "app", answering)
        monkeypatch.setattr(appending, "connected", uncommitted)
        monkeypatch.setattr(appending, "_PAUSE", 0.0)
        monkeypatch.setattr(appender, "ProducerPace", FewCalls)
        await appender.append(SETTINGS)
        return list(answering.asked.values())

    return draw


CUT, DOWN = OutcomeUnknown("cut"), StoreUnavailable("down")
CONFLICT = VersionConflict("category", "stream", expected=0, actual=1)


def unlucky(*errors: Exception) -> Trouble:
    luck = random.Random(1)
    return lambda _: luck.choice(errors) if luck.random() < 0.4 else None


@pytest.mark.parametrize(
    "errors",
    [(CUT,), (DOWN,), (CONFLICT,), (CUT, DOWN, CONFLICT)],
    ids=["unknown", "unavailable", "conflict", "all"],
)
async def test_what_is_drawn_does_not_depend_on_trouble(drawn, errors):
    calm = await drawn(lambda _: None)

    assert len(calm) > CALLS
    assert await drawn(unlucky(*errors)) == calm


async def test_what_is_drawn_does_not_depend_on_one_lost_reply(drawn):
    calm = await drawn(lambda _: None)

    assert await drawn(lambda call: OutcomeUnknown("lost") if call == 1 else None) == calm


def test_every_appender_draws_its_own():
    another = msgspec.structs.replace(SETTINGS, name="a2")

    assert SETTINGS.chance().random() != another.chance().random()
