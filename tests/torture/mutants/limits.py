"""Mutants of limits."""

from __future__ import annotations

from tests.torture.mutants.mutant import POSTGRES, SQLITE, mutant
from tests.torture.mutants.patching import Code, Sql

_CLAIM = "holdfast.backends.postgres.verbs.claim:claim_limited"
_WAIT = "(select pg_sleep(0.05)) is not null and "  # others claim meanwhile

LIMITS = (
    mutant(
        "limit_without_a_count",
        SQLITE,
        "a claim takes as many jobs as the limit allows, however many are running",
        Code("holdfast.model.limits:LimitUse.room", "self.max_running - self.running", "self.max_running"),
        caught_by="I29",
    ),
    mutant(
        "limit_counted_before_its_lock",
        POSTGRES,
        "a claim counts the running jobs first and locks the limit afterwards (and others claim in between)",
        Code(
            _CLAIM,
            'uses = yield from records(LimitUse, "claim_limits")',
            "uses = counted_before",
            (
                (
                    "queues, tasks = yield",
                    'counted_before = yield from records(LimitUse, "claim_limits")\n    queues, tasks = yield',
                ),
            ),
        ),
        Sql(POSTGRES, "lock_task_limits", "where ", f"where {_WAIT}"),
        caught_by="I29",
    ),
    mutant(
        "limit_not_locked",
        POSTGRES,
        "claims under the same limit do not exclude each other (and others claim before this one has)",
        Sql(POSTGRES, "lock_task_limits", "for update skip locked", ""),
        Sql(POSTGRES, "lane_fronts", "where not queue.paused", f"where {_WAIT}not queue.paused"),
        caught_by="I29",
    ),
    mutant(
        "limit_key_without_a_count",
        SQLITE,
        "jobs of a limit key are admitted as if none were ready or running",
        Code("holdfast.backends.sql.limit_keys:_use", "admitted = key.counted + sum", "admitted = 0 * sum"),
        caught_by="I29",
    ),
    mutant(
        "limit_key_without_ready_jobs",
        POSTGRES,
        "jobs of a limit key are admitted while others are ready: only leases are counted",
        Sql(
            POSTGRES,
            "limited_keys",
            "or (select 1 from {schema}.job as job",
            "or false and (select 1 from {schema}.job as job",
        ),
        caught_by="I29",
    ),
)
