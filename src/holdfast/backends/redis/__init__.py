"""Redis and Valkey: the whole contract of jobs, by scripts; no streams.

**The life of a job.** Each arrow is one script; what is written in it moves together.

```text
                        promote                    claim                   complete
   enqueue ──▶ scheduled ──────▶ ready (r) ─────────────▶ running (x) ────────────▶ completed (c)
      │        (s, t: a retry)       ▲         lease, fence    │    under the fence
      │                              │                         ├─▶ write: failed (f), cancelled (k), or a retry
      └──▶ blocked (b: order key     │                         ├─▶ effect: a handler's commands and the completion
           or parents; q: limit key) ┘                         └─▶ write: rescued, when the lease has expired
```

Only the hot verbs (enqueue, claim, complete, extend, promote) have a script each. Everything else is decided in
Python, by the rules of `holdfast.store.verbs`: read, decide, and write if what was read still holds (`steps.py`,
`lua/apply.lua`).

**Where things are.**

```text
   URL                     location.py                  verbs                     jobs.py, claim.py, extender.py
   the primary             primary.py                   rows of the rules         job_rows.py, job_reads.py, …
   connections, errors     wire.py, channel.py,         unique keys, parents      unique_keys.py, children.py
                           error_map.py                 limit keys, limits        limit_keys.py, lane_directory.py
   durability, WAIT        durability.py                large enqueues            staging.py
   facts for doctor        server_facts.py              lists                     job_lists.py, queue_lists.py
   running verbs           runners.py, steps.py         deletion                  retention.py
   scripts                 scripts.py, lua/             a handler's transaction   handler_transaction.py, effects.py
```

**The keys.** All begin with `{holdfast:NAME}:`, so that a store is in one hash slot. A *lane* is a queue and a task, as
a number. A *member* is seq (8 bytes) and id (16), so that equal scores are ordered by seq. A *key set* has the jobs
of one order key of a queue, or of one limit key of a lane; the stored name `lines` is older than this word.

```text
   meta                     hash         version, id of the store, shape and stamp: lane_directory.py
   lanes                    list         the names of lanes
   queues tasks rates       hashes       pauses and limits; how far each rate is used
   j + 4 bytes of the id    hash         packed records of the jobs of 65 s: record.py, lua/prelude.lua; next to a
                                         record, by a letter after the id: large payload p, parents g, unique key u
   buckets                  sorted set   the names of these hashes, to find ids by their beginning
   i + number, chunks       string, hash the ids of 1,000 seqs; how many of them exist
   r s t b q x + lane       sorted sets  ready by turn; delayed, retrying; blocked, waiting for a slot; running
   c + lane                 list         the ledger: completed jobs by their end
   gone bytes               hash, number entries of a ledger whose jobs are deleted; bytes of completed jobs
   f k + lane               sorted sets  failed and cancelled jobs by their end
   leases asked w + worker  sorted sets  leases by expiry; jobs to be cancelled; leases of a worker by fence
   a + id                   hash         attempts that did not complete
   due                      sorted set   each set of scheduled jobs, at the time of its first
   o + key set, lines       sorted sets  jobs of an order key, or waiting for a slot; those with more than a head
   m l + key set, y + lane, wakes        limit keys: limit_keys.py
   h + member, changed      sets         children of a job; jobs whose children are to be decided again
   u until                  hash, set    unique keys and their holders; the end of those for a period
   g v + batch, batches, batch_lock      large enqueues: staging.py
   worker workers retired                numbers and names of workers: retention.py
   heartbeats births        hashes       workers that live, and since when
   schedules                hash         schedules
   records: names: + kind   hash, set    records, their names in order
   n + minute, minutes      hash, set    counts of each minute
   seq fence change marks   numbers      counters
   ends waited probe        strings      a process waits for ends; what WAIT waits for; a key that never exists
   wake                     channel      notifications
```
"""

from __future__ import annotations

from holdfast.errors import ConfigError

try:
    import redis as redis
except ModuleNotFoundError as missing:
    raise ConfigError("redis:// needs the driver redis-py: pip install 'holdfast[redis]'") from missing

from holdfast.backends.redis.backend import open_backend

__all__ = ["open_backend"]
