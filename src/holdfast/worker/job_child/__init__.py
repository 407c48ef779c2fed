"""Handlers in processes of their own: the child's program, what is said between it and the worker, and the pool."""
