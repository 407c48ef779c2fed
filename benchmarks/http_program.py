"""A server of a benchmark as a process: ours, or a bare Starlette handler that makes the same insert.

It says that it is ready, then its port, and serves until it is killed.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import sys

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route
from starlette.types import ASGIApp

from benchmarks import program
from benchmarks.raw.common import TARGET
from holdfast import App, TaskHandle
from holdfast.server import asgi

PATHS = {"ours": "/v1/jobs", "bare": "/"}
BODY = b'{"task": "benchmarks.program.nothing", "kwargs": {"n": %d}}'
"""What both sides are sent."""


def bare(task: TaskHandle[..., object]) -> Starlette:
    """Return what a careful person writes by hand: read JSON, enqueue, answer JSON."""

    async def enqueue(request: Request) -> JSONResponse:
        body = await request.json()
        job = await task.enqueue(**body["kwargs"])
        return JSONResponse({"id": job.id, "created": True}, 201)

    return Starlette(routes=[Route("/", enqueue, methods=["POST"])])


async def serve(app: App, application: ASGIApp) -> None:
    async with app:
        with socket.create_server(("127.0.0.1", 0), backlog=1024) as listener:
            config = uvicorn.Config(application, log_level="error", access_log=False, lifespan="off")
            print("ready", listener.getsockname()[1], sep="\n", flush=True)
            await uvicorn.Server(config).serve([listener])


def main(side: str) -> None:
    logging.basicConfig(level=logging.ERROR)
    app, task = program.make_app(os.environ[TARGET])
    asyncio.run(serve(app, asgi(app) if side == "ours" else bare(task)))


if __name__ == "__main__":
    main(*sys.argv[1:])
