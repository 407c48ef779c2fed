"""The HTTP side: uvicorn web:web."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from fastapi import FastAPI
from orders import Order, app, process, sessions
from pydantic import BaseModel, PositiveInt


@asynccontextmanager
async def lifespan(_: FastAPI) -> AsyncGenerator[None]:
    async with app:
        yield


web = FastAPI(lifespan=lifespan)


class NewOrder(BaseModel):
    item: str
    quantity: PositiveInt


class Placed(BaseModel):
    order_id: int
    job_id: str


@web.post("/order", status_code=201)
async def place(new: NewOrder) -> Placed:
    """Write the order and its job in one transaction: there are both, or neither."""
    async with sessions.begin() as session:
        order = Order(item=new.item, quantity=new.quantity)
        session.add(order)
        await session.flush()  # gives the order its id
        job = await process.options(using=session).enqueue(order.order_id)
    return Placed(order_id=order.order_id, job_id=job.id)
