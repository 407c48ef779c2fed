"""Mutants of the lease: fences dropped or given out twice, leases taken or kept wrongly."""

from __future__ import annotations

from tests.torture.mutants.mutant import POSTGRES, SQLITE, mutant
from tests.torture.mutants.patching import Code, Sql

_VERBS = "holdfast.store.verbs"
_SQLITE = "holdfast.backends.sqlite.verbs"
_WORKER = "holdfast.worker"
LATE = Code(f"{_WORKER}.lease_keeper:LeaseKeeper._extend", "if extension.lost:", "if False:")
"""The word that a lease was lost comes late, as it may: what its holder does meanwhile is what the fence is for."""

_UNDER_ANY_FENCE = (
    "import msgspec\n"
    "    from holdfast.store.job_rows import ById\n"
    "    stale = list(leases)\n"
    "    for lease in stale:\n"
    "        for row in (yield from rows.lock(ById(lease.job_id))).rows:\n"
    "            if row.state == 'running' and row.fence != lease.fence:\n"
    "                leases = [*leases, msgspec.structs.replace(lease, fence=row.fence)]\n"
)
"""Read the present fence of each job: what follows writes under it, whoever asks."""

FENCES = (
    mutant(
        "finish_without_fence",
        SQLITE,
        "plain completions are written under any fence (and the worker learns late that its lease is lost)",
        Sql(SQLITE, "complete_many", " and fence = :fence", ""),
        Sql(SQLITE, "count_completed", " and fence = :fence", ""),
        Sql(SQLITE, "held_under", " and fence = :fence", ""),
        Sql(SQLITE, "leave_completed", "and fence = :fence ", ""),
        Sql(SQLITE, "complete_one", " and fence = :fence", ""),
        LATE,
        caught_by="I2 I6 I8",
        under="stops",
    ),
    mutant(
        "retry_without_fence",
        SQLITE,
        "the outcome of a failed attempt is written under any fence (and the worker learns late that its lease is "
        "lost)",
        Code(
            f"{_VERBS}.finish:finish",
            "    done = yield from under_leases(rows, [item.lease for item in others.values()], decide, heads)\n",
            "    leases = [item.lease for item in others.values()]\n"
            f"    {_UNDER_ANY_FENCE}"
            "    by_seq = {seq: item for (seq, _), item in others.items()}\n"
            "    decide = lambda row, now: _ended(row, now, by_seq[row.seq].outcome)\n"
            "    done = yield from under_leases(rows, leases, decide, heads)\n"
            "    done = {(seq, fence) for seq, fence in others if any(seq == other for other, _ in done)}\n",
        ),
        LATE,
        caught_by="I2 I5 I6 I7 I8",
        under="stops",
    ),
    mutant(
        "effect_without_fence",
        SQLITE,
        "a handler's transaction checks no fence, neither when it begins nor when it ends (and the worker learns "
        "late that its lease is lost)",
        Sql(SQLITE, "complete_one", " and fence = :fence", ""),
        Sql(SQLITE, "leave_completed", "and fence = :fence ", ""),
        Sql(SQLITE, "lock_lease", " and fence = :fence", ""),
        LATE,
        caught_by="I2 I6",
        under="stops",
    ),
    mutant(
        "batch_without_fences",
        SQLITE,
        "a batch writes the effects of jobs that others hold by now (and the worker learns late that leases are lost)",
        Code(
            "holdfast.backends.sql.fenced_verbs:_lock_jobs",
            "frozenset(ordered).intersection([row[:2] for row in found])",
            "frozenset(ordered)",
        ),
        Code("holdfast.jobs.batch_context:BatchEffect.is_accepted", "Verdict.LOST not in verdict", "True"),
        LATE,
        caught_by="I2 I6",
        under="stops",
    ),
    mutant(
        "extend_without_fence",
        SQLITE,
        "a lease is extended under any fence",
        Code(
            f"{_SQLITE}.extend:held_among",
            "return dict(asked.intersection(zip(numbers(seqs), numbers(fences), strict=True)))",
            "held = set(numbers(seqs))\n    return {seq: fence for seq, fence in asked if seq in held}",
        ),
        caught_by="I6 I7",
        under="stops",
    ),
    mutant(
        "release_without_fence",
        SQLITE,
        "a job is released under any fence (and the worker learns late that its lease is lost)",
        Code(
            f"{_VERBS}.rescue:release",
            "    held = yield from under_leases(rows, leases, decide)\n",
            f"    {_UNDER_ANY_FENCE}"
            "    held = yield from under_leases(rows, leases, decide)\n"
            "    leases = stale\n"
            "    held = {(lease.seq, lease.fence) for lease in leases if any(lease.seq == seq for seq, _ in held)}\n",
        ),
        LATE,
        caught_by="I6 I7 I8",
        under="stopped terms",
    ),
    mutant(
        "progress_without_fence",
        SQLITE,
        "progress is written under any fence (and the worker learns late that its lease is lost)",
        Sql(SQLITE, "set_progress", " and fence = :fence", ""),
        LATE,
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
            f"{_SQLITE}.claim:_claim",
            'int(tx.value("take_fence"))',
            'setattr(claim, "given", getattr(claim, "given", 0) + 1) or claim.given',
        ),
        caught_by="I6",
        under="stops",
    ),
    mutant(
        "rescue_by_id",
        SQLITE,
        "leases that were seen as expired some time ago are rescued by id, though they may have been extended since",
        Code(
            f"{_VERBS}.rescue:rescue",
            "found = yield from rows.lock(Expired(unbroken, limit))",
            "from holdfast.store.job_rows import ById, Locked\n"
            "    found = yield from rows.lock(Expired(unbroken, limit))\n"
            '    looks = getattr(rescue, "looks", [[], []])\n'
            "    seen, rescue.looks = looks[0], [looks[1], [row.id for row in found.rows]]\n"
            "    now, taken = found.now, []\n"
            "    for job_id in seen:\n"
            "        by_id = yield from rows.lock(ById(job_id))\n"
            "        now = max(now, by_id.now)\n"
            "        taken += [row for row in by_id.rows if row.state == 'running']\n"
            "    found = Locked(now, taken)",
        ),
        caught_by="I6 I7 I23",
        under="short stops",
    ),
    mutant(
        "rescue_too_early",
        SQLITE,
        "leases are rescued when half of their time is left",
        Sql(SQLITE, "lock_expired", "lease_until <= :now", "lease_until <= :now + lease_span * 6 / 10"),
        caught_by="I7 I23",
    ),
    mutant(
        "rescue_after_outage",
        SQLITE,
        "expired leases are rescued right after an outage, before live workers can extend them",
        Code(f"{_WORKER}.store_calls:StoreCalls._rescue", "rescue(unbroken, limit)", "rescue(None, limit)"),
        caught_by="I23",
        under="outage",
    ),
    mutant(
        "claim_leaves_ready",
        SQLITE,
        "a claimed job can be claimed again while it runs",
        Sql(SQLITE, "lease_front", "insert into", "insert or replace into"),
        Sql(SQLITE, "leave_front", "where", "where seq % 3 <> 0 and"),
        caught_by="I2 I6 I7 I8",
    ),
    mutant(
        "extended_too_late",
        SQLITE,
        "leases are extended after one and a half times their duration",
        Code(f"{_WORKER}.held_leases:HeldLeases.__init__", "lease * extend_at", "lease * 1.5"),
        caught_by="I23",
    ),
    mutant(
        "worker_clock",
        POSTGRES,
        "leases and due times are judged by the clock of each worker, and some are wrong by seconds",
        Code(
            "holdfast.backends.postgres.statements:Statements.__init__",
            "self._clock = clock",
            "import os, time\n    clock = lambda: time.time_ns() // 1000 + (os.getpid() % 3 - 1) * 5_000_000\n"
            "    self._clock = clock",
        ),
        caught_by="I5 I6 I7 I9 I13 I22 I23",
    ),
)
