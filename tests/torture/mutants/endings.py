"""Mutants of beginnings and ends: enqueue, completion, cancel, shutdown, prune."""

from __future__ import annotations

from tests.torture.mutants.mutant import POSTGRES, PULLING, SQLITE, mutant
from tests.torture.mutants.patching import Code, Sql

_VERBS = "holdfast.store.verbs"
_SQLITE = "holdfast.backends.sqlite.verbs"
_LIFE = "holdfast.runtime.effect:_Life"
_END = Code(f"{_LIFE}._end", "await self._calls.verdict(effect.write_end(transaction))", "None")
_DONE = "    if self._ends:\n        effect.committed()"
_FINISH = (
    "from holdfast.model.outcome import Completed, Failed, Failure\n"
    "    from holdfast.store.values import Finish, Verdict\n"
    "    (verdict,) = await self._calls.run(effect.backend.jobs.finish([Finish(effect.lease, {outcome})]))"
)
_COMPLETE = _FINISH.format(outcome="Completed(None)")
_FAIL = _FINISH.format(outcome="Failed(Failure('Late', 'after the effect'))")
_BEGIN = "    self._opening = self._calls.begin(effect, self._isolation)"

_TRANSACTION = "holdfast.backends.postgres.handler_transaction"

ENDINGS = (
    mutant(
        "ledger_row_not_written",
        SQLITE,
        "a completed job leaves `running` and is inserted nowhere",
        Code(
            f"{_SQLITE}.finish:_complete",
            "if len(results) > 1 and set(results.values()) == _PLAIN:",
            "completed = len(results)\n    if completed:\n        pass\n    elif completed > 1:",
        ),
        caught_by="I1",
    ),
    mutant(
        "effect_without_completion",
        SQLITE,
        "ctx.transaction() commits the effect without the completion",
        _END,
        caught_by="I1 I2",
    ),
    mutant(
        "batch_without_ends",
        SQLITE,
        "app.batch() commits the effects without the outcomes of its jobs",
        Code(
            "holdfast.store.handler_transaction:OpenTransaction.finish",
            "self._verbs.finish(finishes)",
            "(lambda: ((yield from ()), [Verdict.DONE] * len(finishes))[1])()",
        ),
        caught_by="I1 I2",
        under=PULLING,
    ),
    mutant(
        "batch_completes_the_last_job_only",
        SQLITE,
        "a batch writes all effects, but ends only its last job",
        Code(
            "holdfast.jobs.batch_context:BatchEffect.write_end",
            "transaction.finish(self.written)",
            "transaction.finish(self.written[-1:])",
        ),
        caught_by="I1 I2",
    ),
    mutant(
        "raising_commits",
        SQLITE,
        "a transaction whose block raises is committed",
        Code(
            "holdfast.backends.sqlite.handler_transaction:SqliteTransaction.undo",
            "self._abandon",
            "self._commit",
        ),
        caught_by="I2 I4",
    ),
    mutant(
        "reset_in_name_only",
        SQLITE,
        "a job that an operator resets stays with its worker",
        Code(
            f"{_VERBS}.job_admin:reset",
            "return True, to_ready(row, now, after_return(row.counters), record)",
            "return True, None",
        ),
        caught_by="I6",
    ),
    mutant(
        "paused_queue_is_claimed",
        SQLITE,
        "a claim takes jobs of paused queues, too",
        Sql(SQLITE, "claimable_lanes", "where paused = 0", "where true"),
        caught_by="I24",
    ),
    mutant(
        "completion_after_the_effect",
        SQLITE,
        "ctx.transaction() commits the effect first and completes the job in a second step",
        _END,
        Code(f"{_LIFE}.__aexit__", _DONE, f"    {_COMPLETE}\n{_DONE}"),
        caught_by="I2 I6",
        under="kills",
    ),
    mutant(
        "failed_after_the_effect",
        SQLITE,
        "ctx.transaction() commits the effect, and the job is written as failed",
        _END,
        Code(f"{_LIFE}.__aexit__", _DONE, f"    {_FAIL}\n{_DONE}"),
        caught_by="I4",
    ),
    mutant(
        "completed_jobs_keep_their_lease",
        SQLITE,
        "a completed job stays in `running`, under a lease that never ends",
        Sql(
            SQLITE,
            "leave_completed",
            "delete from holdfast_running where",
            "update holdfast_running set lease_until = lease_until + 1000000000000 where",
        ),
        caught_by="I21",
        strands=True,
    ),
    mutant(
        "completion_before_the_effect",
        SQLITE,
        "ctx.transaction() completes the job first and writes the effect afterwards, unless it is interrupted",
        Code(
            f"{_LIFE}.__aenter__",
            _BEGIN,
            f"    {_COMPLETE}\n"
            "    if verdict is Verdict.LOST:\n"
            "        raise await self._calls.run(effect.refusal(verdict))\n"
            "    failpoint('before_commit')\n"
            "    self._ends = False\n"
            f"{_BEGIN}",
        ),
        Sql(
            SQLITE,
            "lock_lease",
            "select seq from holdfast_running where seq = :seq and fence = :fence",
            "select seq from holdfast_running where seq = :seq and fence = :fence"
            " union all select seq from holdfast_completed where seq = :seq and fence = :fence",
        ),
        caught_by="I1 I5",
        under="kills",
    ),
    mutant(
        "commit_error_swallowed",
        POSTGRES,
        "a commit that fails is treated as a success",
        Code(
            f"{_TRANSACTION}:PostgresAsyncTransaction.commit_transaction",
            '        await uncancellable(self.connection.end(b"commit"))',
            "        try:\n"
            '            await uncancellable(self.connection.end(b"commit"))\n'
            "        except Exception:\n"
            "            pass",
        ),
        Code(
            f"{_TRANSACTION}:PostgresBlockingTransaction.commit_transaction",
            "        self._block.__exit__(None, None, None)",
            "        try:\n"
            "            self._block.__exit__(None, None, None)\n"
            "        except Exception:\n"
            "            pass",
        ),
        caught_by="I1 I6 I8 I2",
        under="cuts",
    ),
    mutant(
        "enqueue_again_under_a_new_id",
        POSTGRES,
        "an enqueue without a reply is repeated under new ids",
        Code(
            "holdfast.jobs.enqueue_batcher:EnqueueBatcher.enqueue",
            "        return await backend.jobs.enqueue(jobs)\n",
            "        from holdfast.model.ids import new_id\n"
            "        import msgspec\n"
            "        while True:\n"
            "            try:\n"
            "                return await backend.jobs.enqueue(jobs)\n"
            "            except (StoreUnavailable, OutcomeUnknown):\n"
            "                await asyncio.sleep(0.1)\n"
            "                jobs = [msgspec.structs.replace(job, id=new_id()) for job in jobs]\n",
        ),
        caught_by="I1 I3",
        under="lost replies",
    ),
    mutant(
        "enqueue_outside_the_callers_transaction",
        POSTGRES,
        "options(using=…) writes through a separate connection, and so commits whatever the caller does",
        Code("holdfast.app.app:App._enqueue_new", "if using is not None:", "if False:"),
        caught_by="I3",
    ),
    mutant(
        "enqueue_of_some",
        SQLITE,
        "the last job of a batch is left out",
        Code(f"{_SQLITE}.enqueue:_enqueue", "_insert(tx, jobs)", "_insert(tx, jobs[: max(1, len(jobs) - 1)])"),
        caught_by="I1 I20",
    ),
    mutant(
        "cancel_deletes",
        SQLITE,
        "a cancelled job is deleted",
        Sql(
            SQLITE,
            "put_cancelled",
            "values (:seq, :attempt, :excused, :lost, :finished_at, :reason)",
            "select :seq, :attempt, :excused, :lost, :finished_at, :reason where 0",
        ),
        caught_by="I1",
    ),
    mutant(
        "cancel_of_a_running_job_is_promised",
        SQLITE,
        "a running job is reported as cancelled as soon as its cancellation is requested",
        Code(f"{_VERBS}.job_admin:_cancelled", "return Cancellation.ASKED", "return Cancellation.CANCELLED"),
        caught_by="I8",
    ),
    mutant(
        "prune_without_retention",
        SQLITE,
        "finished jobs are pruned whatever their retention",
        Code("holdfast.backends.sql.job_rows:SqlJobRows.prune", "span = span_micros(keep)", "span = 0"),
        caught_by="I1 I19",
        under="terms",
    ),
    mutant(
        "prune_of_the_unfinished",
        SQLITE,
        "pruning deletes waiting jobs, too",
        Sql(
            SQLITE,
            "prune_counts",
            "holdfast_count where minute_at < :now - :keep",
            "holdfast_job where seq in (select seq from holdfast_ready order by turn desc limit 3) and :keep",
        ),
        caught_by="I1 I19",
        under="terms",
        strands=True,  # its ready rows stay, without jobs
    ),
    mutant(
        "nothing_released_at_shutdown",
        SQLITE,
        "a worker that stops keeps the leases of jobs that it has not begun",
        Code(
            "holdfast.worker.in_flight:InFlight.release_prefetched",
            "self.releases.add(job.lease, started=False)",
            "self.holdings.settled(job.seq)",
        ),
        caught_by="I9",
        under="terms",
    ),
    mutant(
        "finishes_dropped_at_shutdown",
        SQLITE,
        "a worker that stops drops the outcomes of the attempts that still run",
        Code(
            "holdfast.worker.in_flight:InFlight.ended",
            "    buffer[seq] = Finish(",
            "    if not self._keeps_claimed:\n"
            "        self.holdings.settled(seq)\n"
            "        return True\n"
            "    buffer[seq] = Finish(",
        ),
        caught_by="I9",
        under="terms",
    ),
)
