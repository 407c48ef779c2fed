"""`holdfast demo`: many jobs, several consumers, some of which are killed, and a verdict on the effects.

```text
   command ──▶ opening, cleaning (open or remove the demo's separate store)
      │
      ├──▶ run (plan, produce) ──▶ conductor (start, kill and restart consumers) ──▶ verify
      │           │                          │  reports as JSON lines                  │
      ▼           ▼                          ▼                                         ▼
    steps   records, target  ◀──  child, consumer (claim, attempt, commit)   verdict, attempt_distribution
```
"""
