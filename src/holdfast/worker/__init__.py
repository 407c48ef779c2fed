"""The worker: claims jobs, runs their handlers, extends their leases and writes their outcomes.

Its decisions are made by `machine`, a state machine without I/O, clock, randomness or event loop. The rest of this
package carries them out and reports the results; the simulator does the same.

`job_child` runs handlers in child processes, `supervision` runs several workers as one program.
"""
