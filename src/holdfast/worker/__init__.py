"""The worker: claims jobs, runs their handlers, extends their leases, and writes how they ended.

What it decides is in `machine`, a state machine without I/O, clock, randomness or event loop. The rest of this package
carries the decisions out and reports what came of them; a simulator can do the same.

`job_child` runs handlers in processes of their own, `supervision` makes several workers one program.
"""
