"""The roles of the documentation: what its GRANT statements allow, and what is said without them."""

from __future__ import annotations

import re
import secrets
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psycopg
import pytest
from click.testing import CliRunner
from psycopg import Connection
from tests.servers.postgres import parts_of

from holdfast import App, PrivilegeMissing, WorkerBroken, chain, group
from holdfast.cli.main import cli
from holdfast.runtime.exit_code import ExitCode

PAGE = Path(__file__).parents[2] / "docs" / "howto" / "postgresql.md"
BLOCKS = re.findall(r"```sql\n-- (.*)\n((?:grant .*\n)+)```", PAGE.read_text())
WEB, CONDITIONS, APPENDS, WORKER, OPERATOR = (text.splitlines() for _, text in BLOCKS)

REFUSED = (PrivilegeMissing, WorkerBroken)  # a worker that may not claim cannot continue, and says why


class Roles:
    """Roles of this test, with the statements of the page on its own schema."""

    def __init__(self, owner: Connection[Any], url: str) -> None:
        self._owner = owner
        self._url = url
        self._made: list[str] = []

    def new(self, statements: list[str]) -> str:
        """Make a role, grant it what the statements say, and return its URL."""
        role = f"role_{secrets.token_hex(6)}"
        self._owner.execute(f"create role {role} login".encode())
        self._made.append(role)
        schema = parts_of(self._url)[1]
        for statement in statements:
            ours = re.sub(r"\bholdfast\b", schema, statement)
            self._owner.execute(re.sub(r" to \w+;$", f" to {role};", ours).encode())
        parts = urlsplit(self._url)
        return parts._replace(netloc=f"{role}@{parts.netloc.rpartition('@')[2]}").geturl() + "&install=never"

    def drop(self) -> None:
        for role in self._made:
            self._owner.execute(f"drop owned by {role}; drop role {role}".encode())


@pytest.fixture
def roles(url: str) -> Iterator[Roles]:
    with psycopg.connect(parts_of(url)[0], autocommit=True) as owner:
        roles = Roles(owner, url)
        yield roles
        roles.drop()


def app_with_task(url: str) -> tuple[App, Any]:
    app = App(url)

    @app.task(name="greet", max_attempts=1)
    async def greet(n: int) -> None:
        if n < 0:
            raise ValueError(n)

    return app, greet


async def enqueue(url: str) -> None:
    """Enqueue in every way."""
    app, greet = app_with_task(url)
    try:
        job = await greet.enqueue(1)
        await greet.options(delay=0.01).enqueue(-1)
        await greet.enqueue_many([{"n": n} for n in range(1500)])
        for _ in range(2):
            await greet.options(order_key="customer-3").enqueue(1)
        await greet.options(order_key="customer-3").enqueue_many([{"n": 1}, {"n": 2}])
        assert not (await greet.options(job_id=job.id).enqueue(1)).created
    finally:
        await app.close()


async def enqueue_on_conditions(url: str) -> None:
    """Enqueue unique jobs, and jobs after others."""
    app, greet = app_with_task(url)
    try:
        keyed = greet.options(unique_key="customer-3")
        first = await keyed.enqueue(1)
        assert (await keyed.enqueue(2)).id == first.id
        replacing = greet.options(unique_key="customer-4", unique_for="waiting", on_conflict="replace")
        for delay in (60, 0, 60, 0):
            await replacing.options(delay=delay).enqueue(1)
        await greet.options(unique=True, unique_for=timedelta(hours=1)).enqueue_many([{"n": 1}, {"n": 1}, {"n": 2}])
        await greet.options(after=[first]).enqueue(2)
        await chain(greet.call(3), group(*(greet.call(n) for n in range(1500))), greet.call(4)).enqueue()
    finally:
        await app.close()


async def append(url: str) -> None:
    app = App(url)
    try:
        await app.append("orders", stream=secrets.token_hex(6), name="placed", payload=1, expected_version=0)
        await app.append_many("orders", [{"stream": "b", "name": "placed", "payload": 1}] * 3)
    finally:
        await app.close()


async def work(url: str) -> None:
    app, _ = app_with_task(url)
    try:
        totals = await app.drain("default")
        assert totals.completed >= 1500
        await app.queues.pause("default")
        await app.queues.resume("default")
    finally:
        await app.close()


async def look(url: str) -> None:
    app = App(url)
    try:
        (first, *_) = (await app.jobs.list("completed")).jobs
        await app.jobs.show(first.id)
        await app.job(first.id).state()
        await app.jobs.counts()
        await app.queues.list()
        await app.leases()
        await app.workers()
        await app.consumers.list()
        await app.nodes()
        await app.read(log=True)
        await (await app.opened()).insight.facts()
    finally:
        await app.close()


async def test_each_role_can_do_its_own_and_no_more(roles: Roles):
    web, worker, operator = roles.new(WEB), roles.new(WORKER), roles.new(OPERATOR)
    await enqueue(web)
    await work(worker)
    await enqueue(worker)
    await append(worker)
    await look(operator)
    await append(roles.new([*WEB, *APPENDS]))
    await enqueue_on_conditions(roles.new([*WEB, *CONDITIONS]))
    for refused in (
        append(web),
        enqueue_on_conditions(web),
        work(web),
        look(web),
        enqueue(operator),
        work(operator),
        append(operator),
    ):
        with pytest.raises(
            PrivilegeMissing, match=r"permission denied for .* `grant select, insert, update, delete on"
        ):
            await refused


@pytest.mark.parametrize("left_out", range(len(WEB)))
async def test_every_statement_for_a_web_application_is_needed(roles: Roles, left_out: int):
    url = roles.new([*WEB[:left_out], *WEB[left_out + 1 :]])
    with pytest.raises(PrivilegeMissing, match="permission denied for"):
        await enqueue(url)


@pytest.mark.parametrize("left_out", range(len(CONDITIONS)))
async def test_every_statement_for_conditions_is_needed(roles: Roles, left_out: int):
    url = roles.new([*WEB, *CONDITIONS[:left_out], *CONDITIONS[left_out + 1 :]])
    with pytest.raises(PrivilegeMissing, match="permission denied for"):
        await enqueue_on_conditions(url)


@pytest.mark.parametrize("left_out", range(len(APPENDS)))
async def test_every_statement_for_events_is_needed(roles: Roles, left_out: int):
    url = roles.new([*WEB, *APPENDS[:left_out], *APPENDS[left_out + 1 :]])
    with pytest.raises(PrivilegeMissing, match="permission denied for"):
        await append(url)


@pytest.mark.parametrize(("statements", "do"), [(WORKER, work), (OPERATOR, look)])
async def test_every_other_statement_is_needed(roles: Roles, statements: list[str], do: Any):
    await enqueue(roles.new(WORKER))
    if do is look:
        await work(roles.new(WORKER))
    for left_out in range(len(statements)):
        with pytest.raises(REFUSED, match="permission denied for"):
            await do(roles.new([*statements[:left_out], *statements[left_out + 1 :]]))


async def test_without_any_right_the_statement_for_the_schema_is_named(roles: Roles, url: str):
    stranger = roles.new([])
    role = urlsplit(stranger).username
    with pytest.raises(PrivilegeMissing) as raised:
        await enqueue(stranger)
    assert f'run `grant usage on schema {parts_of(url)[1]} to "{role}"`' in str(raised.value)


def test_a_command_says_so_and_does_not_claim_that_the_server_cannot_be_reached(roles: Roles):
    result = CliRunner().invoke(cli, ["job", "list"], env={"HOLDFAST_URL": roles.new([])})
    assert result.exit_code == ExitCode.CONFIGURATION
    assert "permission denied for schema" in result.output
    assert "grant usage on schema" in result.output
    assert "cannot be reached" not in result.output
