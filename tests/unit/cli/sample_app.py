"""The app that the tests of the command line name by `--app`; its store is replaced by `--url` or $HOLDFAST_URL."""

from __future__ import annotations

from datetime import date
from decimal import Decimal

from holdfast import App, Event

app = App("sqlite:///not-used-by-any-test.db")
empty = App("sqlite:///not-used-by-any-test.db")
consuming = App("sqlite:///not-used-by-any-test.db")
number = 7


@app.task(queue="orders", max_attempts=2)
async def charge(order_id: int, note: str = "") -> str:
    return f"{order_id} {note}"


@app.task
async def bill(on: date, amount: Decimal) -> None:
    del on, amount


@app.task
async def place(order_id: int, /, *rest: int) -> None:
    del order_id, rest


@consuming.consumer("billing", category="orders")
async def settle(event: Event) -> None:
    del event
