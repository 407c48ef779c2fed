"""Mutants of schedules."""

from __future__ import annotations

from tests.torture.mutants.mutant import POSTGRES, SQLITE, mutant
from tests.torture.mutants.patching import Code, Sql

_FIRING = "holdfast.model.schedule:firing"

SCHEDULES = (
    mutant(
        "tick_before_its_time",
        SQLITE,
        "a schedule that is due fires its next time as well",
        Code(_FIRING, "if next_at > now:", "now += 1_000_000\n    if next_at > now:"),
        caught_by="I30",
    ),
    mutant(
        "missed_ticks_are_dropped",
        SQLITE,
        "of the times that passed while no worker could fire them, the last one fires, though all are to",
        Code(_FIRING, "if times.missed is Missed.ALL:", "if False:"),
        caught_by="I30",
        under="outage",
    ),
    mutant(
        "next_at_before_the_jobs",
        SQLITE,
        "the next time of a schedule is committed before the jobs of the present one (and some workers get no further)",
        Code(
            "holdfast.store.schedules_over_rows:SchedulesOverRows.fire",
            "fired = await self._runner.write(lambda: rules.fire(self._rows, due, limit, insert))",
            "import random\n"
            "    later = []\n"
            "    def keep(jobs):\n"
            "        later.extend(jobs)\n"
            "        yield from ()\n"
            "        return [True] * len(jobs)\n"
            "    fired = await self._runner.write(lambda: rules.fire(self._rows, due, limit, keep))\n"
            "    if later and random.random() < 0.7:\n"
            "        await self._runner.write(lambda: insert(later))",
        ),
        caught_by="I30",
        under="outage",
    ),
    mutant(
        "tick_under_a_random_id",
        POSTGRES,
        "each job of a schedule has an id of its own, and workers fire without locking the schedule (and slowly)",
        Code(
            "holdfast.model.schedule:tick_id",
            'bits = int.from_bytes(_hash(name, time, "id")[:10])',
            "import random\n    bits = random.getrandbits(80)",
        ),
        Sql(POSTGRES, "lock_free_schedules", "for update skip locked", ""),
        Sql(POSTGRES, "write_schedule", "where name", "where (select pg_sleep(0.1)) is not null and name"),
        caught_by="I30",
    ),
)
