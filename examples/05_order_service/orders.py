"""What the web application and the workers share: the tables, the app and its one task."""

from __future__ import annotations

import asyncio
import logging
import os

from sqlalchemy import ForeignKey, MetaData
from sqlalchemy.ext.asyncio import async_sessionmaker, create_async_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from holdfast import App, Context

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


@app.task(queue="orders")
async def process(ctx: Context, order_id: int) -> None:
    """Ship an order: first what is slow, then one short transaction for the effect and the end of the job."""
    await asyncio.sleep(0.02)  # the label printer
    async with ctx.transaction() as connection:
        await connection.execute("update order_service.orders set is_shipped = true where order_id = %s", (order_id,))
        await connection.execute(
            "insert into order_service.shipment (order_id, attempt, process_id) values (%s, %s, %s)",
            (order_id, ctx.job.attempt, os.getpid()),
        )
    logger.info("order %d shipped", order_id)
