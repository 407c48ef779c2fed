"""The verbs at the two ends of a handler's transaction, on SQLite."""

from __future__ import annotations

from typing import Any

from holdfast.backends.sql.fences import FencedVerbs
from holdfast.backends.sql.steps import BecameReady
from holdfast.backends.sqlite.connection import Tx
from holdfast.backends.sqlite.execute import Direct
from holdfast.backends.sqlite.verbs import consumers, finish
from holdfast.model.allocation import Grant
from holdfast.model.job import Lease
from holdfast.store.steps import Steps
from holdfast.store.stream_values import Commit, CommitVerdict
from holdfast.store.values import Standing, Verdict


def _lock_job(lease: Lease, _: int) -> Steps[bool]:
    standing: Any = yield Direct(lambda tx: finish.standing(tx, lease))
    return standing is Standing.HELD


def _complete(lease: Lease, result: str | None) -> Steps[Verdict]:
    def work(tx: Tx) -> tuple[Verdict, bool]:
        return finish.complete(tx, lease, result), tx.brought_up

    verdict: Verdict
    verdict, made_ready = yield Direct(work)
    if made_ready:
        yield BecameReady()
    return verdict


def _lock_share(grant: Grant, _: int) -> Steps[bool]:
    held: Any = yield Direct(lambda tx: consumers.held(tx, grant))
    return held is not None


def _commit(grant: Grant, commit: Commit) -> Steps[CommitVerdict]:
    verdict: CommitVerdict = yield Direct(lambda tx: consumers.commit(tx, grant, commit))
    return verdict


FENCED = FencedVerbs(_lock_job, _complete, _lock_share, _commit)
