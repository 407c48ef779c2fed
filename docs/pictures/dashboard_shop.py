"""A store with something of everything, for pictures of the dashboard and for its tests in a browser.

An hour of work is done within seconds: the store's clock is moved while the jobs run, and ends at the present.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from datetime import timedelta

from holdfast import App, Event, Limit
from holdfast.backends.sqlite import open_backend

_MINUTE = 60_000_000
_CHANCE = random.Random(7)  # noqa: S311 - a picture, not a secret
_PATIENCE = 20.0  # seconds until the workers must have done what they can


class Clock:
    """The store's clock: the present, less some minutes."""

    def __init__(self) -> None:
        self.minutes_ago = 0

    def __call__(self) -> int:
        """Return the time in microseconds."""
        return time.time_ns() // 1000 - self.minutes_ago * _MINUTE


async def charge(order_id: int, *, card_token: str = "") -> str:  # noqa: ARG001 - redacted where it is shown
    """Fail for some orders always, for others by chance."""
    if order_id % 23 == 7:
        raise LookupError(f"there is no order {order_id}")
    if _CHANCE.random() < 0.04:
        raise ConnectionError("the payment service has closed the connection")
    return f"charged {order_id}"


async def send(to: str) -> None:
    """Fail for some users."""
    if to.endswith("13"):
        raise ValueError(f"mailbox {to} is full")


async def newsletter(to: str) -> None:
    """Do nothing."""


async def export(part: int) -> None:
    """Do nothing: no worker serves its queue."""


async def bill(event: Event) -> None:
    """Fail for one event."""
    if event.payload == {"number": 3}:
        raise ValueError("the address is incomplete")


async def index(event: Event) -> None:
    """Do nothing."""


class Shop:
    """An app with tasks, schedules and consumers, some of which fail."""

    def __init__(self, url: str) -> None:
        self.app = app = App(url, name="shop", limits={"exports": Limit(running=2)})
        self.clock = Clock()
        app.backend = open_backend(url, clock=self.clock)
        self.is_open = asyncio.Event()  # until then, reports do not end
        self.charge = app.task(queue="orders", max_attempts=2, retry=0.01)(charge)
        self.send = app.task(queue="mails", max_attempts=1)(send)
        self.newsletter = app.task(queue="mails")(newsletter)
        self.export = app.task(queue="exports")(export)
        self.report = app.task(name="report", queue="reports")(self._report)
        app.schedule("30 2 * * MON-FRI", name="nightly", timezone="Europe/Vienna", kwargs={"to": "all"})(
            self.newsletter
        )
        app.schedule(name="sweep", every=600, kwargs={"to": "all"})(self.newsletter)
        app.consumer("billing", category="companies", max_attempts=1, on_error="park")(bill)
        app.consumer("search-index", category="companies")(index)

    async def _report(self, month: int) -> int:
        await self.is_open.wait()
        return month

    async def past(self, minutes: int = 55) -> None:
        """Do the work of the last hour."""
        order = 0
        for minute in range(minutes, 0, -1):
            self.clock.minutes_ago = minute
            number = 6 + int(10 * abs((minute % 30) - 15) / 15) + _CHANCE.randrange(5)
            await self.charge.enqueue_many(
                [{"order_id": order + each, "card_token": "tok_83"} for each in range(number)]
            )
            await self.send.enqueue_many([{"to": f"user-{order + each}"} for each in range(number // 3)])
            order += number
            await self.app.drain("orders", 20)
            await self.app.drain("mails", 20)
        self.clock.minutes_ago = 0

    async def present(self) -> None:
        """Enqueue what waits, runs or is blocked now, and append events."""
        await self.report.options(order_key="2026").enqueue_many([{"month": month} for month in range(1, 4)])
        await self.export.enqueue_many([{"part": part} for part in range(40)])
        await self.send.options(delay=600).enqueue_many([{"to": f"user-{number}"} for number in range(5)])
        first = await self.report.enqueue(7)
        parts = [await self.export.options(after=[first]).enqueue(part) for part in range(3)]
        await self.newsletter.options(after=parts).enqueue("all")
        for number in range(40):
            stream = f"company-{number % 9}"
            await self.app.append("companies", stream=stream, name="renamed", payload={"number": number})
        await self.app.queues.pause("mails")

    @asynccontextmanager
    async def at_work(self) -> AsyncGenerator[None]:
        """Run a worker, and wait until it holds jobs and the consumers have read everything."""
        async with self.app.working(
            queues=["orders", "reports"], concurrency=8, lease=timedelta(minutes=2), drain_timeout=0.1
        ):
            async with asyncio.timeout(_PATIENCE):
                while not await self._is_settled():  # noqa: ASYNC110 - the worker gives no sign
                    await asyncio.sleep(0.05)
            yield
            self.is_open.set()

    async def _is_settled(self) -> bool:
        consumers = await self.app.consumers.list()
        is_read = len(consumers) == 2 and not any(view.lag for view in consumers)
        return is_read and len(await self.app.leases()) >= 2 and len(await self.app.schedules.list()) >= 2
