"""What a task with batches may not be declared as."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast import App, BatchContext, Call, ConfigError, Worker


def test_wrong_declarations_are_refused_with_the_remedy():
    app = App("sqlite://")

    async def good(ctx: BatchContext, calls: list[Call[int]]) -> None: ...

    async def one(order_id: int) -> None: ...

    async def no_context(ctx: int, calls: list[Call[int]]) -> None: ...

    async def no_calls(ctx: BatchContext, calls: list[int]) -> None: ...

    for handler, settings, words in [
        (good, {"batch": 0}, "whole number"),
        (good, {"batch": 10, "executor": "process"}, "executor"),
        (good, {"batch": 10, "max_attempts": 1}, "last attempt"),
        (one, {"linger": 1}, "batch="),
        (one, {"batch": 10}, "list of calls"),
        (no_context, {"batch": 10}, "BatchContext"),
        (no_calls, {"batch": 10}, "list of calls"),
    ]:
        with pytest.raises(ConfigError, match=words):
            app.task(**settings)(handler)  # type: ignore[arg-type]


async def test_a_worker_with_its_own_process_refuses_batches(app: App):
    class Own(Worker):
        async def process(self, job: Any, ctx: Any) -> None: ...

    @app.task(batch=10)
    async def charge(ctx: BatchContext, calls: list[Call[int]]) -> None: ...

    with pytest.raises(ConfigError, match="one job at a time"):
        app.worker(worker_class=Own)
