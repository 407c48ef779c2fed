"""Lets something happen at a certain call: the process ends, a reply is lost, another process acts."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from holdfast.backends.redis.steps import ScriptCall
from holdfast.backends.redis.wire import AsyncWire
from holdfast.errors import OutcomeUnknown, StoreUnavailable


class Ends(Exception):  # noqa: N818 - not an error
    """The process ends here."""


def ending_before(monkeypatch: pytest.MonkeyPatch, number: int, script: str | None = None) -> None:
    """End before the `number`-th call, or the `number`-th of a script."""

    async def end() -> None:
        raise Ends

    acting_before(monkeypatch, number, end, script)


def acting_before(
    monkeypatch: pytest.MonkeyPatch, number: int, act: Callable[[], Awaitable[None]], script: str | None = None
) -> None:
    """Act before the `number`-th call; calls of the act itself do not count."""
    sent, is_acting = 0, False
    call = AsyncWire.call

    async def counting(wire: AsyncWire, asked: ScriptCall, store: bytes) -> Any:
        nonlocal sent, is_acting
        if not is_acting and script in {None, asked.script.name}:
            sent += 1
            if sent == number:
                is_acting = True
                await act()
                is_acting = False
        return await call(wire, asked, store)

    monkeypatch.setattr(AsyncWire, "call", counting)


def losing_reply(monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    """Lose the reply of the `number`-th call."""
    sent = 0
    call = AsyncWire.call

    async def losing(wire: AsyncWire, asked: ScriptCall, store: bytes) -> Any:
        nonlocal sent
        reply = await call(wire, asked, store)
        sent += 1
        if sent == number:
            raise (OutcomeUnknown if asked.writes else StoreUnavailable)("the reply was lost")
        return reply

    monkeypatch.setattr(AsyncWire, "call", losing)


__all__ = ["Ends", "acting_before", "ending_before", "losing_reply"]
