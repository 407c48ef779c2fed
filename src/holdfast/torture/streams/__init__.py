"""`holdfast torture --streams`: the same button for streams.

```text
   appenders ──▶ store ◀── nodes            each a process, each with a history file of its own
                   ▲          ▲
                   │          │ the same faults as for jobs, by the same nemesis
                 proxy     nemesis  ◀── conductor: looks at shares, positions and transitions once a second
                                            │
                                            ▼ after the drain
     history + events + effects + parked + shares ──▶ checker (I15 to I18 and those that go with them) ──▶ verdict
```
"""
