"""`holdfast demo`: many works, several consumers, some of them killed on the way, and a verdict that could be bad.

```text
   command ──▶ stage (plan the run, produce) ──▶ conductor (start, kill and restart consumers) ──▶ verify
                     │                                │  lines of reports                          │
                     ▼                                ▼                                            ▼
                  records  ◀─────────────────────  consumer (claim, try, batch)                 verdict, law
```
"""
