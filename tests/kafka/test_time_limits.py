"""The time limits that a URL passes on hold at a real broker, also for appends of many and for relays."""

from __future__ import annotations

import pytest

from holdfast import App, ConfigError

MANY = [{"stream": "a", "name": "placed", "payload": n} for n in range(2)]


async def append_many(url: str, events: str) -> list[object]:
    app = App(url, events=events)
    try:
        await app.append_many("orders", MANY)
        return [event.payload for event in await app.read("orders", limit=10)]
    finally:
        await app.close()


@pytest.mark.parametrize("query", ["rd.delivery.timeout.ms=60000", "rd.transaction.timeout.ms=5000"])
async def test_events_are_appended_in_a_transaction_under_any_time_limit(url: str, events: str, query: str):
    assert await append_many(url, f"{events}?{query}") == [0, 1]


async def test_a_time_limit_past_that_of_the_brokers_is_refused_by_name(url: str, events: str):
    with pytest.raises(ConfigError, match=r"set rd\.transaction\.timeout\.ms .* at most .* transaction\.max\.timeout"):
        await append_many(url, f"{events}?rd.transaction.timeout.ms=1000000")  # brokers take up to 900,000
