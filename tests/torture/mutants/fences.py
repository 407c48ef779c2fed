"""Mutants of the lease: fences dropped or given out twice, leases taken or kept wrongly."""

from __future__ import annotations

from tests.torture.mutants.mutant import POSTGRES, SQLITE, mutant
from tests.torture.mutants.patching import Code, Sql

_VERBS = "holdfast.backends.sqlite.verbs"
_WORKER = "holdfast.worker"
_LATE = Code(f"{_WORKER}.lease_keeper:LeaseKeeper._extend", "if extension.lost:", "if False:")
"""The word that a lease was lost comes late, as it may: what its holder does meanwhile is what the fence is for."""

FENCES = (
    mutant(
        "finish_without_fence",
        SQLITE,
        "plain completions are written whoever holds the job now (and the word that a lease was lost is late)",
        Sql(SQLITE, "complete_many", " and fence = :fence", ""),
        Sql(SQLITE, "count_completed", " and fence = :fence", ""),
        Sql(SQLITE, "completed_among", " and fence = :fence", ""),
        Sql(SQLITE, "leave_running", "and fence = :fence ", ""),
        _LATE,
        caught_by="I2 I6 I8",
        under="stops",
    ),
    mutant(
        "retry_without_fence",
        SQLITE,
        "an attempt that failed is written as such whoever holds the job now "
        "(and the word that a lease was lost is late)",
        Code(f"{_VERBS}.finish:_finish_one", "rows.find(tx, lease.seq, lease.fence)", "rows.find(tx, lease.seq, None)"),
        _LATE,
        caught_by="I2 I5 I6 I7 I8",
        under="stops",
    ),
    mutant(
        "effect_without_fence",
        SQLITE,
        "a handler's transaction looks at no fence, neither at its beginning nor at its end "
        "(and the word that a lease was lost is late)",
        Sql(SQLITE, "complete_one", " and fence = :fence", ""),
        Sql(SQLITE, "leave_running_alone", " and fence = :fence", ""),
        Sql(SQLITE, "standing", "where seq = :seq and fence = :fence) then 'held'", "where seq = :seq) then 'held'"),
        _LATE,
        caught_by="I2 I6",
        under="stops",
    ),
    mutant(
        "extend_without_fence",
        SQLITE,
        "a lease is extended for whoever asks, its holder or not",
        Code(
            f"{_VERBS}.leases:held_among",
            "return dict(asked.intersection(zip(_decode_numbers(seqs), _decode_numbers(fences), strict=True)))",
            "held = set(_decode_numbers(seqs))\n    return {seq: fence for seq, fence in asked if seq in held}",
        ),
        caught_by="I6 I7",
        under="stops",
    ),
    mutant(
        "release_without_fence",
        SQLITE,
        "a job is given back by whoever asks, its holder or not (and the word that a lease was lost is late)",
        Code(f"{_VERBS}.rescue:release", "rows.find(tx, lease.seq, lease.fence)", "rows.find(tx, lease.seq, None)"),
        _LATE,
        caught_by="I6 I7 I8",
        under="stopped terms",
    ),
    mutant(
        "progress_without_fence",
        SQLITE,
        "progress is noted for whoever reports it (and the word that a lease was lost is late)",
        Sql(SQLITE, "set_progress", " and fence = :fence", ""),
        _LATE,
        caught_by="I6",
        under="stops",
    ),
    mutant(
        "fence_not_raised",
        SQLITE,
        "all claims have the same fence",
        Sql(SQLITE, "take_fence", "fence + 1", "max(fence, 1)"),
        caught_by="I6",
    ),
    mutant(
        "fence_per_worker",
        SQLITE,
        "every worker counts fences for itself",
        Code(
            f"{_VERBS}.claim:claim",
            'int(tx.value("take_fence"))',
            'setattr(claim, "given", getattr(claim, "given", 0) + 1) or claim.given',
        ),
        caught_by="I6",
        under="stops",
    ),
    mutant(
        "rescue_by_id",
        SQLITE,
        "leases that were seen as expired some time ago are taken by id, though they may have been extended since",
        Code(
            f"{_VERBS}.rescue:rescue",
            'return _take(tx, [seq for (seq,) in expired], "its lease expired")',
            'looks = getattr(rescue, "looks", [[], []])\n'
            "    seen, rescue.looks = looks[0], [looks[1], [seq for (seq,) in expired]]\n"
            '    return _take(tx, seen, "its lease expired")',
        ),
        caught_by="I6 I7 I23",
        under="short stops",
    ),
    mutant(
        "rescue_too_early",
        SQLITE,
        "leases are taken when half of their time is still to run",
        Sql(SQLITE, "expired", "lease_until <= :now", "lease_until <= :now + lease_span * 6 / 10"),
        caught_by="I7 I23",
    ),
    mutant(
        "rescue_after_outage",
        SQLITE,
        "expired leases are taken in the first moment after an outage, before the living can extend them",
        Code(f"{_WORKER}.store_calls:StoreCalls._rescue", "rescue(unbroken, limit)", "rescue(None, limit)"),
        caught_by="I23",
        under="outage",
    ),
    mutant(
        "claim_leaves_ready",
        SQLITE,
        "a claimed job can be claimed again while it runs",
        Sql(SQLITE, "lease_front", "insert into", "insert or replace into"),
        Sql(SQLITE, "leave_ready", "where", "where seq % 3 <> 0 and"),
        caught_by="I2 I6 I7 I8",
    ),
    mutant(
        "extended_too_late",
        SQLITE,
        "leases are extended after one and a half times their length",
        Code(f"{_WORKER}.held_leases:HeldLeases.__init__", "lease * extend_at", "lease * 1.5"),
        caught_by="I23",
    ),
    mutant(
        "worker_clock",
        POSTGRES,
        "each worker's own clock, some of them wrong by seconds, judges leases and due times",
        Code(
            "holdfast.backends.postgres.statements:Statements.__init__",
            "self._clock = clock",
            "import os, time\n    clock = lambda: time.time_ns() // 1000 + (os.getpid() % 3 - 1) * 5_000_000\n"
            "    self._clock = clock",
        ),
        caught_by="I5 I6 I7 I9 I13 I22 I23",
    ),
)
