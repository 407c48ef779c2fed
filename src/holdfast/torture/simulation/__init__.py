"""Deterministic simulation: the worker's real decision code over the reference model, in virtual time, from one seed.

```text
            scenario (seed): workers, jobs, faults, rates
                │
   fleet ── seats filled and emptied, producers, operator, faults
                │
   shell ── the loop of one worker ──▶ Machine (the real one) ──▶ Decision
     │  ├── calls      decision ─▶ call ─▶ event            │
     │  ├── attempts   handlers, transactions, aborts       └── HeldLeases (the real one)
     │  └── keeper     extends what HeldLeases lists
     ▼
   network ── latency, loss, unknown outcomes, outages ──▶ store ── Reference (the real one)
                                                             ├── stale_reads: past states that answer stale reads
                                                             └── judge: raises at the first reply that breaks a rule
```

**What is real.** All decision code of the worker: `machine`, `in_flight`, `held_leases`, `finish_buffer`,
`release_buffer`, `claim_pacing`, `maintenance`, `reachability`, `backoff`, `totals`, `settings`; the budget and the
retry policies of `model`; and as the store the reference model, which the conformance suite ties to every backend.

**What is reimplemented.** The shell around the machine does I/O, so its decisions are written again here, close to the
original: `worker.worker` and `worker.store_calls` in `shell` and `calls` (one event per reply, `stalled` before a late
one), `worker.lease_keeper` in `keeper` (the order of its turn, what is timed from the request and what from the reply),
`worker.attempts`, `worker.job_child.pool` and `jobs.context` in `attempts` (settling around a commit, verifying after
an unknown one, what an abort does where). A relevant change there must be made here too. One precaution of the backends
is reimplemented: a rescue that was long in flight takes nothing.

**What is not covered.** Anything that exists only in the originals: asyncio, threads, processes, SQL. Steps are atomic
where threads could interleave within one. The store never loses what it acknowledged. Rows are not locked, so a lock
wait in a database is an order of arrival here; the fault `held` simulates waiting writers. Progress, results, pruning,
and payloads that cut a claim short do not occur.

The judge is not the checker of the torture: the checker reads the histories of real processes afterwards; the judge
sees every call at the instant it takes effect, so it can also check what no history shows, such as whether the worker
that lost a lease was healthy.
"""

from __future__ import annotations

from holdfast.torture.simulation.run import SimulationVerdict, run, run_seed
from holdfast.torture.simulation.scenario import Scenario, draw

__all__ = ["Scenario", "SimulationVerdict", "draw", "run", "run_seed"]
