"""What a server's error means for a verb: repeat it, wait for the server, look what has happened, or give up."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pymysql
import pytest

from holdfast.backends.mysql.backend import MysqlBackend
from holdfast.backends.mysql.driver import VerbConnection
from holdfast.backends.mysql.error_map import is_conflict, translate
from holdfast.errors import OutcomeUnknown, StoreError, StoreUnavailable, TransactionConflict
from holdfast.model.job import JobState
from holdfast.model.outcome import Completed
from holdfast.store.values import Finish
from holdfast.testing.conformance.base import a_job, hold_one, state_of

ERRORS: list[tuple[int, type[StoreError]]] = [
    (1213, TransactionConflict),
    (3101, TransactionConflict),  # group replication: two nodes have changed the same rows
    (1047, StoreUnavailable),  # a Galera node that has no quorum
    (1317, StoreUnavailable),
    (1969, StoreUnavailable),  # MariaDB: max_statement_time
    (3024, StoreUnavailable),  # MySQL: max_execution_time
    (1064, StoreError),
]


@pytest.mark.parametrize(("code", "kind"), ERRORS)
def test_an_error_of_a_server_has_its_kind(code: int, kind: type[StoreError]):
    error = pymysql.OperationalError(code, "text")
    assert type(translate(error, "mysql://shop", broken=False)) is kind
    assert is_conflict(error) == (kind is TransactionConflict)


@pytest.mark.parametrize("code", [1053, 1317, 1927, 1969, 3024])
def test_a_commit_that_was_interrupted_may_have_committed(code: int):
    error = pymysql.OperationalError(code, "text")
    assert type(translate(error, "mysql://shop", broken=False, committing=True)) is OutcomeUnknown


@pytest.mark.parametrize("code", [1213, 1205, 1062, 1290])
def test_a_commit_that_was_refused_has_not_committed(code: int):
    error = pymysql.OperationalError(code, "read-only")
    assert not isinstance(translate(error, "mysql://shop", broken=False, committing=True), OutcomeUnknown)


def interrupt_commits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let each commit take effect, and be answered as if it had been killed."""
    ask = VerbConnection.ask

    async def interrupted(self: VerbConnection, texts: list[str]) -> Any:
        answers = await ask(self, texts)
        if texts[-1] == "commit":
            raise pymysql.OperationalError(1317, "Query execution was interrupted")
        return answers

    monkeypatch.setattr(VerbConnection, "ask", interrupted)


async def test_an_enqueue_whose_commit_is_interrupted_is_not_reported_as_unwritten(
    backend: MysqlBackend, monkeypatch: pytest.MonkeyPatch
):
    await backend.jobs.enqueue([a_job()])  # its queue and its task are known from here on
    job = a_job()
    with monkeypatch.context() as patched:
        interrupt_commits(patched)
        with pytest.raises(OutcomeUnknown):
            await backend.jobs.enqueue([job])
    assert await backend.jobs.enqueue([job]) == [False]


async def test_a_handlers_commit_that_is_interrupted_is_unknown(backend: MysqlBackend, monkeypatch: pytest.MonkeyPatch):
    job = await hold_one(backend)
    with monkeypatch.context() as patched:
        interrupt_commits(patched)
        with pytest.raises(OutcomeUnknown):
            async with backend.begin(job.lease, limit=timedelta(seconds=20)) as transaction:
                await transaction.complete(job.lease, None)
    assert await state_of(backend, job.id) is JobState.COMPLETED
    await backend.jobs.finish([Finish(job.lease, Completed(None))])
