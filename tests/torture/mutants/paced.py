"""Mutants of the limits of queues, and of rates."""

from __future__ import annotations

from tests.torture.mutants.mutant import POSTGRES, SQLITE, mutant
from tests.torture.mutants.patching import Code, Sql

_USE = "holdfast.model.limits:LimitUse"
_WAIT = "(select pg_sleep(0.05)) is not null and "  # others claim meanwhile

PACED = (
    mutant(
        "rate_is_not_spent",
        SQLITE,
        "a claim does not move the rate of its limit, so that each may take as many jobs as may come at once",
        Code(f"{_USE}.rate_after", "taken * self.step", "0"),
        caught_by="I31",
    ),
    mutant(
        "slots_of_a_queue_are_not_counted",
        SQLITE,
        "a claim takes as many jobs of a queue as its limit allows, however many are running",
        Sql(SQLITE, "running_of_queue", "where lane.queue = :name", "where false"),
        caught_by="I31",
    ),
    mutant(
        "queue_limit_not_locked",
        POSTGRES,
        "claims under the limit of a queue do not exclude each other (and others claim before this one has)",
        Sql(POSTGRES, "lock_queue_limits", "for update skip locked", ""),
        Sql(POSTGRES, "lane_fronts", "where not queue.paused", f"where {_WAIT}not queue.paused"),
        caught_by="I31",
    ),
)
