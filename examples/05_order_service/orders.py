"""What the web application and the workers share: the tables, the app and its one task."""

from __future__ import annotations

import asyncio
import logging
import os

from sqlalchemy import ForeignKey, MetaData
from sqlalchemy.ext.asyncio import async_sessionmaker, create_async_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from holdfast import App, BatchContext, Call

URL = os.environ.get("ORDERS_URL", "postgresql://localhost:5432/shop")  # without parameters
logger = logging.getLogger("orders")

app = App(f"{URL}?schema=order_jobs")
engine = create_async_engine(URL.replace("://", "+psycopg://", 1))
sessions = async_sessionmaker(engine, expire_on_commit=False)


class Base(DeclarativeBase):
    metadata = MetaData(schema="order_service")


class Order(Base):
    __tablename__ = "orders"

    order_id: Mapped[int] = mapped_column(primary_key=True)
    item: Mapped[str]
    quantity: Mapped[int]
    is_shipped: Mapped[bool] = mapped_column(default=False)


class Shipment(Base):
    """The effect of an order. `order_id` is not unique here, so that a second shipment would show."""

    __tablename__ = "shipment"

    shipment_id: Mapped[int] = mapped_column(primary_key=True)
    order_id: Mapped[int] = mapped_column(ForeignKey(Order.order_id))
    attempt: Mapped[int]
    process_id: Mapped[int]


@app.task(queue="orders", batch=50)
async def process(ctx: BatchContext, calls: list[Call[int]]) -> None:
    """Ship up to 50 orders: first what is slow, then one short transaction for all effects and the ends of all jobs."""
    await asyncio.gather(*(asyncio.sleep(0.02) for _ in calls))  # the label printer
    shipments = [(call.argument, call.job.attempt, os.getpid()) for call in calls]
    async with ctx.transaction() as connection, connection.cursor() as cursor:
        await cursor.execute(
            "update order_service.orders set is_shipped = true where order_id = any(%s)",
            ([call.argument for call in calls],),
        )
        await cursor.executemany(
            "insert into order_service.shipment (order_id, attempt, process_id) values (%s, %s, %s)", shipments
        )
    logger.info("from order %d on %d shipped", calls[0].argument, len(calls))
