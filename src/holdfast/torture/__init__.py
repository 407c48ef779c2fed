"""`holdfast torture`: real processes, injected faults, a history of every operation, and a checker that verifies it.

```text
   producers ──▶ store ◀── workers          separate processes, each with its own history file
                   ▲          ▲
                   │          │ kill, stop, term, failpoints, cut links, terminated sessions, restarts, clock steps
                 proxy     nemesis  ◀── conductor ──▶ live view, report
                                            │
                                            ▼ after the drain
                   history files + effects + final states ──▶ checker ──▶ verdict
```
"""
