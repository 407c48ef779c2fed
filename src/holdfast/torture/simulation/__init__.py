"""Deterministic simulation: the worker's own decisions over the reference model, in virtual time, from one seed.

```text
            scenario (seed): workers, jobs, faults, rates
                │
   fleet ── seats filled and emptied, producers, operator, faults
                │
   shell ── the loop of one worker ──▶ Machine (the real one) ──▶ Decision
     │  ├── calls      decision ─▶ call ─▶ event            │
     │  ├── attempts   handlers, transactions, aborts       └── Holdings (the real one)
     │  └── keeper     extends what Holdings says
     ▼
   wire ── latency, loss, unknown outcomes, outages ──▶ store ── Reference (the real one)
                                                          ├── past: what looks that are old are answered from
                                                          └── judge: raises at the first answer that breaks a rule
```

**What is real.** All of the worker that decides: `machine`, `custody`, `holdings`, `finishes`, `releases`, `batching`,
`upkeep`, `access`, `backoff`, `tally`, `settings`; the budget and the retry policies of `model`; and as the store the
reference model, which the conformance suite ties to every backend.

**What is retold.** The shell around the machine has I/O, so its decisions are written again here, close to the
original: `worker.worker` and `worker.calls` in `shell` and `calls` (one event for each answer, `stalled` before a late
one), `worker.keeper` in `keeper` (the order of its turn, what is noted from the sending and what from the answer),
`worker.attempts`, `worker.job_child.pool` and `jobs.context` in `attempts` (settling around a commit, verifying after
an unknown one, what an abort does where). A change there that matters here has to be made here too. Of the backends'
own care one piece is retold: a rescue that was long on its way takes nothing.

**What is not covered.** Anything that only exists in the originals: asyncio, threads, processes, SQL. Steps are atomic
where threads could interleave within one. The store never loses what it has acknowledged. Rows are not locked, so what
waits for a lock in a database is here an order of arrival; of waiting writers there is the fault `held`. Progress,
results, pruning, and payloads that cut a claim short do not occur.

The judge is not the checker of the torture: that one reads the histories of real processes afterwards; this one sees
every call at the instant of its effect, so it can also judge what no history shows, such as whether the worker that
lost a lease was healthy.
"""

from __future__ import annotations

from holdfast.torture.simulation.run import SimulationVerdict, run, run_seed
from holdfast.torture.simulation.scenario import Scenario, draw

__all__ = ["Scenario", "SimulationVerdict", "draw", "run", "run_seed"]
