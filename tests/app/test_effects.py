"""`ctx.transaction()` has one life cycle: the same for jobs and events, in a coroutine and in a thread."""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import pytest
from tests.app.stream_work import QUICK, append, drained, eventually, query, running
from tests.app.test_lost_replies import LOST
from tests.app.work import run_all

from holdfast import App, ConfigError, Context, Event, EventContext, OutcomeUnknown, StoreUnavailable

FACES = ["job-async", "job-thread", "event-async", "event-thread"]
INSERT = "insert into effect (note) values ('once')"


class Handlers:
    """One job, or one event, whose handler is made of steps that are the same for all four faces."""

    def __init__(self, app: App, face: str) -> None:
        self.app = app
        self.kind, self.how = face.split("-")
        self.calls = 0
        self.met: list[type[BaseException]] = []

    async def run(self, *, attempts: Callable[[int], int] = lambda call: 1, after: Callable[[int], None]) -> None:
        """Let the handler open `attempts(call)` transactions one after another, then do what `after(call)` says."""

        async def handle(ctx: Any) -> None:
            self.calls += 1
            for _ in range(attempts(self.calls)):
                try:
                    async with ctx.transaction() as connection:
                        await connection.execute(INSERT)
                except Exception as error:  # noqa: BLE001 - the test looks at them
                    self.met.append(type(error))
            after(self.calls)

        def handle_in_thread(ctx: Any) -> None:
            self.calls += 1
            for _ in range(attempts(self.calls)):
                try:
                    with ctx.sync.transaction() as connection:
                        connection.execute(INSERT)
                except Exception as error:  # noqa: BLE001
                    self.met.append(type(error))
            after(self.calls)

        await self._run(handle if self.how == "async" else handle_in_thread)

    async def nest(self) -> None:
        """Let the handler open a transaction inside a transaction."""

        async def handle(ctx: Any) -> None:
            async with ctx.transaction() as connection:
                await connection.execute(INSERT)
                with pytest.raises(ConfigError, match="a transaction is open here already"):
                    async with ctx.transaction():
                        pass

        def handle_in_thread(ctx: Any) -> None:
            with ctx.sync.transaction() as connection:
                connection.execute(INSERT)
                with pytest.raises(ConfigError, match="a transaction is open here already"), ctx.sync.transaction():
                    pass

        await self._run(handle if self.how == "async" else handle_in_thread)

    async def _run(self, body: Callable[[Any], Any]) -> None:
        is_async = inspect.iscoroutinefunction(body)
        if self.kind == "job":

            async def charge(ctx: Context) -> None:
                await body(ctx)

            def charge_in_thread(ctx: Context) -> None:
                body(ctx)

            task = self.app.task(name="charge", retry=0.01)(charge if is_async else charge_in_thread)
            await task.enqueue()
            await run_all(self.app)
            return

        async def billing(event: Event, ctx: EventContext) -> None:
            await body(ctx)

        def billing_in_thread(event: Event, ctx: EventContext) -> None:
            body(ctx)

        register = self.app.consumer("billing", category="orders", poll_interval=0.05, retry=0.01)
        register(billing if is_async else billing_in_thread)
        await append(self.app, "a", 1)
        async with running(self.app.node(timing=QUICK)):
            await eventually(drained(self.app))

    async def effects(self) -> int:
        return int((await query(self.app, "select count(*) from effect"))[0][0])


@pytest.fixture(params=FACES)
async def handlers(request: pytest.FixtureRequest, file_app: App) -> Handlers:
    await file_app.opened()
    await query(file_app, "create table effect (note text not null)")
    return Handlers(file_app, request.param)


@pytest.fixture
def lose_replies(handlers: Handlers, monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """Let the first commit of a handler be done and its reply be lost; the store then refuses the next questions."""

    def lose(refused: int) -> None:
        backend = handlers.app.backend
        store = backend.transactions if handlers.kind == "job" else backend.streams.consumers
        verbs = backend.jobs if handlers.kind == "job" else backend.streams.consumers
        begin, begin_blocking = type(store).begin, type(store).begin_blocking
        left = iter([True])

        @asynccontextmanager
        async def unheard(self: Any, *args: Any, **words: Any) -> AsyncIterator[Any]:
            async with begin(self, *args, **words) as transaction:
                yield transaction
            if next(left, False):
                arm()
                raise LOST

        @contextmanager
        def unheard_blocking(self: Any, *args: Any, **words: Any) -> Iterator[Any]:
            with begin_blocking(self, *args, **words) as transaction:
                yield transaction
            if next(left, False):
                arm()
                raise LOST

        def arm() -> None:
            verify = type(verbs).verify
            errors = iter([StoreUnavailable("gone") for _ in range(refused)])

            async def asked(self: Any, *args: Any, **words: Any) -> Any:
                for error in errors:
                    raise error
                return await verify(self, *args, **words)

            monkeypatch.setattr(type(verbs), "verify", asked)

        monkeypatch.setattr(type(store), "begin", unheard)
        monkeypatch.setattr(type(store), "begin_blocking", unheard_blocking)

    return lose


def goes_on(call: int) -> None:
    """Return."""


def raises_at_first(call: int) -> None:
    if call == 1:
        raise ValueError("what the handler made of it")


async def test_a_commit_whose_reply_was_lost_is_found_in_the_store_and_the_handler_goes_on(handlers, lose_replies):
    lose_replies(0)
    await handlers.run(after=goes_on)
    assert (handlers.calls, handlers.met, await handlers.effects()) == (1, [], 1)


@pytest.mark.parametrize("refused", [1, 2, 3])
@pytest.mark.parametrize("after", [goes_on, raises_at_first])
async def test_a_handler_that_hides_an_unknown_commit_does_not_repeat_its_effect(
    handlers, lose_replies, refused, after
):
    lose_replies(refused)
    await handlers.run(after=after)
    assert (handlers.calls, handlers.met, await handlers.effects()) == (1, [OutcomeUnknown], 1)


async def test_a_handler_that_opens_another_transaction_after_an_unknown_commit_does_not_repeat_its_effect(
    handlers, lose_replies
):
    lose_replies(1)
    await handlers.run(attempts=lambda call: 2, after=goes_on)
    assert (handlers.calls, len(handlers.met), await handlers.effects()) == (1, 2, 1)


async def test_a_second_transaction_is_refused(handlers):
    await handlers.run(attempts=lambda call: 2, after=goes_on)
    assert (handlers.met, await handlers.effects()) == ([ConfigError], 1)


async def test_a_transaction_inside_a_transaction_is_refused_and_the_outer_one_commits(handlers):
    await handlers.nest()
    assert await handlers.effects() == 1
