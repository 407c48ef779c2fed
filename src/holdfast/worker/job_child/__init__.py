"""Handlers in child processes: the child's program, the protocol between it and the worker, and the pool."""
