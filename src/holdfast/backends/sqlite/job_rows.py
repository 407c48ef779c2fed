"""The rows of jobs on SQLite: the shared code, with hot paths for SQLite."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.backends.sql.job_rows import SqlJobRows
from holdfast.backends.sqlite.connection import Tx
from holdfast.backends.sqlite.execute import direct
from holdfast.backends.sqlite.verbs.finish import complete_all
from holdfast.store.job_rows import CompletedRows
from holdfast.store.steps import Steps
from holdfast.store.unique_keys import UniqueClaim
from holdfast.store.values import Finish


class SqliteJobRows(SqlJobRows):
    """`JobRows` on SQLite."""

    def complete(self, finishes: Sequence[Finish]) -> Steps[CompletedRows]:  # noqa: D102 - the port states the contracts
        return (yield from direct(lambda tx: complete_all(tx, finishes))())

    def add_keys(self, claims: Sequence[UniqueClaim], *, again: bool) -> Steps[int]:  # noqa: D102
        def add(tx: Tx) -> int:
            return tx.many(
                "add_unique_key",
                (
                    (task, unique_key, job_id, str(scope), None if period is None else tx.now + period, again)
                    for task, unique_key, job_id, scope, period in claims
                ),
            )

        return (yield from direct(add)())
