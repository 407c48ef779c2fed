"""The rules of jobs, written once: generators over the rows of a store, without I/O."""
