"""Mutants of what is counted and when a job's turn is: attempts, limits, delays, order."""

from __future__ import annotations

from tests.torture.mutants.mutant import POSTGRES, SQLITE, mutant
from tests.torture.mutants.patching import Code, Sql

_VERBS = "holdfast.store.verbs"
_BUDGET = "holdfast.model.budget"

COUNTING = (
    mutant(
        "attempt_counted_at_the_end",
        SQLITE,
        "an attempt whose worker dies is not counted",
        Code(
            f"{_VERBS}.rescue:lose",
            'return to_ready(row, now, decision.counters, record, ("lost",))',
            "import msgspec\n"
            "    back = msgspec.structs.replace(decision.counters, attempt=row.attempt - 1)\n"
            '    return to_ready(row, now, back, record, ("lost",))',
        ),
        caught_by="I5",
        under="kills",
    ),
    mutant(
        "retry_forgets_the_count",
        SQLITE,
        "the attempts of a job that is retried are counted from the start again",
        Code(
            f"{_VERBS}.finish:_ended",
            "to_scheduled(row, now, row.counters, now",
            "to_scheduled(row, now, type(row.counters)(), now",
        ),
        caught_by="I5",
    ),
    mutant(
        "one_attempt_more",
        SQLITE,
        "max_attempts is off by one",
        Code("holdfast.model.job:Job.is_last_attempt", ">= self.max_attempts", "> self.max_attempts"),
        caught_by="I5",
    ),
    mutant(
        "one_attempt_less",
        SQLITE,
        "max_attempts is off by one, the other way",
        Code("holdfast.model.job:Job.is_last_attempt", "self.used_attempts", "1 + self.used_attempts"),
        caught_by="I5",
    ),
    mutant(
        "snooze_costs_an_attempt",
        SQLITE,
        "a snooze counts against max_attempts",
        Code(
            f"{_VERBS}.finish:_ended",
            "after_return(row.counters), now",
            "row.counters, now",
        ),
        caught_by="I5",
    ),
    mutant(
        "loss_costs_the_innocent",
        SQLITE,
        "a job that is lost together with others loses an attempt",
        Code(f"{_BUDGET}:_interrupted", "excused=counters.excused + 1, ", ""),
        caught_by="I5",
        under="kills",
    ),
    mutant(
        "no_lost_worker_rule",
        SQLITE,
        "a job that kills its worker is excused each time, forever",
        Code(f"{_BUDGET}:after_loss", "if alone:", "if False:"),
        Code(f"{_BUDGET}:_interrupted", "if counters.interrupted < MAX_INTERRUPTED:", "if True:"),
        caught_by="I1 I5",
        under="killers",
        strands=True,
    ),
    mutant(
        "lost_jobs_not_isolated",
        SQLITE,
        "a job that was lost runs in its worker, together with others",
        Code("holdfast.worker.attempts:Attempts._spawn", "job.lost > 0", "job.lost > 99"),
        caught_by="I5",
        under="kills",
    ),
    mutant(
        "attempt_leaves_no_record",
        SQLITE,
        "attempts that do not complete are not recorded",
        Code(
            f"{_VERBS}.job_changes:recorded",
            "thin=thinned(row.attempt)",
            "thin=(-1, 1 << 30)",
        ),
        caught_by="I5",
    ),
    mutant(
        "retry_without_delay",
        SQLITE,
        "the delay of a retry is ignored",
        Code(
            f"{_VERBS}.finish:_ended",
            "row.counters, now + span_micros(delay)",
            "row.counters, now",
        ),
        caught_by="I13",
    ),
    mutant(
        "promoted_too_early",
        SQLITE,
        "scheduled jobs count as due before their time",
        Sql(SQLITE, "due_jobs", "run_at <= :now", "run_at <= :now + 300000"),
        caught_by="I13",
    ),
    mutant(
        "promoted_twice",
        SQLITE,
        "a due job becomes ready and stays scheduled",
        Sql(SQLITE, "leave_scheduled", "where", "where random() % 2 and"),
        Sql(SQLITE, "put_ready", "insert into", "insert or ignore into"),
        caught_by="I2 I6 I8 I5",
    ),
    mutant(
        "priority_ignored",
        SQLITE,
        "the turn of a job is its run_at, whatever its priority",
        Code("holdfast.model.turn:turn_of", "run_at - priority * _STEP", "run_at"),
        Code("holdfast.model.turn:run_at_of", "turn + priority * _STEP", "turn"),
        caught_by="I22",
        under="crowd",
    ),
    mutant(
        "order_key_ignored",
        SQLITE,
        "jobs of one order_key do not wait for each other",
        Sql(SQLITE, "new_to_ready", "order_key is null and ", ""),
        Sql(SQLITE, "new_to_scheduled", "order_key is null and ", ""),
        Sql(SQLITE, "new_to_blocked", "where job.seq > :after", "where job.seq > :after and false"),
        caught_by="I10",
    ),
    mutant(
        "last_in_first_out",
        POSTGRES,
        "the latest job of a lane is claimed first",
        Sql(
            POSTGRES, "claim", "order by turn, seq limit front.share", "order by turn desc, seq desc limit front.share"
        ),
        caught_by="I22",
        under="crowd",
    ),
    mutant(
        "floor_never_reset",
        POSTGRES,
        "claims begin at the position of the last one, and never at the start again",
        Code("holdfast.store.claim_floor:Floors.starts", "self._places.clear()", "pass"),
        Code("holdfast.store.claim_floor:Floors.came_short", "self._places.clear()", "return False"),
        Code("holdfast.store.claim_floor:Floors.lower", "self._places[lane_id] = (turn, seq)", "pass"),
        caught_by="I1 I22",
        under="kills",
        strands=True,
    ),
)
