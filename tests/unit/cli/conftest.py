"""The command line in this process, over a SQLite file of each test's own."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

import click
import pytest
from click.testing import CliRunner, Result
from rich.text import Text

from holdfast import App
from holdfast.cli.main import cli
from holdfast.model.allocation import Grant, GrantTo, NodeKey, Share, Timing
from holdfast.model.event import NewEvent
from holdfast.model.ids import new_id
from holdfast.model.job import LeasedJob
from holdfast.model.outcome import Completed, Failed, Failure
from holdfast.store.backend import Backend
from holdfast.store.stream_values import Commit, Member, NewNode, Park, StartAt, Subscription
from holdfast.store.values import ClaimRequest, Finish

APP = ("--app", "tests.unit.cli.sample_app:app")
HOSTILE = "a\x1b[31mb\x00c\nd\te\u202ef\u200bg[red]h[/red]\x9bi\x7fj\u2028k"
KEPT = r"a\x1b[31mb␀c\nd\te\u202ef\u200bg[red]h[/red]\x9bi\x7fj\u2028k"
"""The same after a store has kept it: no store keeps NUL in a message."""
SHOWN = r"a\x1b[31mb\x00c\nd\te\u202ef\u200bg[red]h[/red]\x9bi\x7fj\u2028k"
NODE = NodeKey("node-a", "life-1")
GRANT = Grant(Share("billing", "orders", 0), 1)


class Shop:
    """A store and the command line over it."""

    def __init__(self, url: str) -> None:
        self.url = url

    def run(self, *args: str, code: int = 0, url: str | None = None, stdin: str | None = None) -> Result:
        """Run a command and require its exit code."""
        result = CliRunner().invoke(cli, list(args), input=stdin, env={"HOLDFAST_URL": url or self.url})
        assert result.exit_code == code, f"{result.exit_code}\n{result.output}\n{result.exception!r}"
        return result

    def screen(self, *args: str, width: int = 80, colour: bool = False) -> list[str]:
        """Return the lines that a command prints on a terminal of this width."""
        env = {"HOLDFAST_URL": self.url, "FORCE_COLOR": "1", "COLUMNS": str(width)}
        result = CliRunner().invoke(cli, list(args), env=env, color=True)
        assert result.exit_code == 0, result.output
        text = result.stdout if colour else Text.from_ansi(result.stdout).plain
        return [line.rstrip() for line in text.splitlines()]

    def json(self, *args: str) -> Any:
        return json.loads(self.run(*args, "--json").stdout)

    def enqueue(self, task: str = "charge", *args: str) -> str:
        arguments = args or ("--arg", "order_id=7")
        return self.run("job", "enqueue", task, *APP, *arguments).stdout.strip()

    def within(self, work: Callable[[Backend], Awaitable[Any]]) -> Any:
        """Do something to the store itself."""

        async def whole() -> Any:
            async with App(self.url) as app:
                return await work(app.backend)

        return asyncio.run(whole())

    def claim(self, *, lease: float = 30, worker_id: str = "w1") -> LeasedJob:
        request = ClaimRequest(worker_id, ("charge", "bill", "place"), 1, timedelta(seconds=lease), isolates=False)
        job: LeasedJob = self.within(lambda backend: backend.jobs.claim(request)).jobs[0]
        return job

    def complete(self) -> str:
        job = self.claim()
        self.within(lambda backend: backend.jobs.finish([Finish(job.lease, Completed('"done"'))]))
        return job.id

    def fail(self, message: str = "boom", traceback: str = "") -> str:
        job = self.claim()
        outcome = Failed(Failure("ValueError", message, traceback))
        self.within(lambda backend: backend.jobs.finish([Finish(job.lease, outcome)]))
        return job.id


@pytest.fixture
def shop(tmp_path) -> Shop:
    return Shop(f"sqlite:///{tmp_path}/jobs.db")


@pytest.fixture
def at_the_question(monkeypatch):
    """Let something happen while a person reads the question and then agrees; returns the questions."""
    questions: list[str] = []

    def arrange(happens: Callable[[], Any]) -> list[str]:
        def consent(question: str, *, yes: bool) -> None:
            questions.append(question)
            other = threading.Thread(target=happens)  # the command's own loop runs in this one
            other.start()
            other.join()

        monkeypatch.setattr("holdfast.cli.job_bulk.require_consent", consent)
        return questions

    return arrange


@pytest.fixture
def streams(shop: Shop) -> Shop:
    """A category of one partition with three events, and a consumer that has done nothing yet."""

    async def prepare(backend):
        events = backend.streams.events
        await events.open_category("orders", 1)
        await events.append([NewEvent(new_id(), "orders", "order-1", "placed", "{}") for _ in range(3)])
        await backend.streams.consumers.subscribe("billing", Subscription("orders"), StartAt.BEGINNING)

    shop.within(prepare)
    return shop


def grant(shop) -> None:
    """Let a node have the consumer's only partition."""

    async def give(backend):
        allocations = backend.streams.allocations
        await allocations.join(NewNode(NODE, "here", 42, (Member("billing", 2),), Timing()))
        leadership = await allocations.lead(NODE, timedelta(seconds=30))
        await allocations.move_shares(leadership, [GrantTo(GRANT.share, 0, NODE)], grace=timedelta(0))

    shop.within(give)


def park(shop, stream="order-1") -> None:
    """Let that node park the first event, and the second behind it."""

    async def put(backend):
        failure = Failure(HOSTILE, "cannot bill", "Traceback")
        commit = Commit(0, 2, (Park(1, stream, failure, 3), Park(2, stream)))
        await backend.streams.consumers.commit(GRANT, commit)

    grant(shop)
    shop.within(put)


def every_command(
    group: click.Command = cli, path: tuple[str, ...] = ()
) -> list[tuple[tuple[str, ...], click.Command]]:
    """Return all commands with their words; a group that does something by itself is one too."""
    if not isinstance(group, click.Group):
        return [(path, group)]
    ctx = click.Context(group)
    named = [(name, group.get_command(ctx, name)) for name in group.list_commands(ctx)]
    below = [pair for name, command in named if command for pair in every_command(command, (*path, name))]
    return [(path, group), *below] if group.invoke_without_command else below
