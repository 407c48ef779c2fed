"""`holdfast torture`: real processes, real faults, a history of all that was told, and a checker that believes nobody.

```text
   producers ──▶ store ◀── workers          each a process, each with a history file of its own
                   ▲          ▲
                   │          │ kill, stop, term, failpoints, cut links, terminated sessions, restarts, clock steps
                 proxy     nemesis  ◀── conductor ──▶ live view, report
                                            │
                                            ▼ after the drain
                   history files + effects + final states ──▶ checker ──▶ verdict
```
"""
