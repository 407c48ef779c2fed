"""Mutants of effects that are queued: written under any fence, or not undone."""

from __future__ import annotations

from tests.torture.mutants.fences import LATE
from tests.torture.mutants.mutant import REDIS, mutant
from tests.torture.mutants.patching import Code, Lua

EFFECTS = (
    mutant(
        "queued_effect_without_fence",
        REDIS,
        "queued commands are applied under any fence, unlike the end of the job (and the worker learns late that its "
        "lease is lost)",
        Code(
            "holdfast.backends.redis.handler_transaction:_lock_jobs",
            "(record.seq, record.fence) == _key(lease)",
            "record.seq == lease.seq",
        ),
        Lua("effect", "if lost then return", "if false then return"),
        LATE,
        caught_by="I2 I4 I6",
        under="stops",
    ),
    mutant(
        "queued_effect_not_undone",
        REDIS,
        "what was written before a command that failed stays",
        Lua("effect", "for k, old in pairs(saved) do", "for k, old in pairs({}) do"),
        caught_by="I2 I6",
    ),
)
