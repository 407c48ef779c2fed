"""`holdfast demo`: many works, several consumers, some of them killed on the way, and a verdict that could be bad.

```text
   command ──▶ opening, cleaning (a store of its own, or a refusal)
      │
      ├──▶ stage (plan the run, produce) ──▶ conductor (start, kill and restart consumers) ──▶ verify
      │                 │                                │  lines of reports                     │
      ▼                 ▼                                ▼                                       ▼
    steps          records, ground  ◀────────────  consumer (claim, try, batch)            verdict, law
```
"""
