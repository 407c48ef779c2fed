"""`holdfast demo`: many jobs, several workers, some of which are killed, and a verdict on the effects.

```text
   command ──▶ opening, cleaning (open or remove the demo's separate store)
      │
      ├──▶ run (plan, produce) ──▶ conductor (start, kill and restart workers) ──▶ verify
      │           │                          │  reports as JSON lines                  │
      ▼           ▼                          ▼                                         ▼
    steps   records, target  ◀──  child, worker (claim, attempt, commit)   verdict, attempt_distribution
```
"""
