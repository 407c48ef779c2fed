"""Mutants of jobs that wait for others."""

from __future__ import annotations

from tests.torture.mutants.mutant import POSTGRES, SQLITE, mutant
from tests.torture.mutants.patching import Code, Sql

GRAPHS = (
    mutant(
        "released_by_one_parent",
        SQLITE,
        "a job that waits for others is released when one of them has ended",
        Sql(SQLITE, "unsettled_children", "else not child.unfinished or", "else true or"),
        caught_by="I28",
    ),
    mutant(
        "children_of_failed_jobs_run",
        POSTGRES,
        "a job that waits for another runs when that has failed",
        Code("holdfast.model.graph:move_of", "parents.is_broken and not parents.run_anyway", "False"),
        caught_by="I28",
    ),
    mutant(
        "parents_not_marked",
        POSTGRES,
        "an enqueue does not mark the jobs that the new one waits for, so their ends are not recorded",
        Code(
            "holdfast.store.verbs.children:_follow",
            "[row for row in found.rows if row.state not in ENDED]",
            "[]",
        ),
        caught_by="I1 I28",
        strands=True,
    ),
)
