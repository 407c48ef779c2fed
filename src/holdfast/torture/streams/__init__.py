"""`holdfast torture --streams`: the same for streams.

```text
   appenders ──▶ store ◀── nodes            separate processes, each with its own history file
                   ▲          ▲
                   │          │ the same faults as for jobs, by the same nemesis
                 proxy     nemesis  ◀── conductor: reads shares, positions and transitions once a second
                                            │
                                            ▼ after the drain
     history + events + effects + parked + shares ──▶ checker (I15 to I18, and the related ones) ──▶ verdict
```
"""
