"""The port: what Holdfast needs from a store, in verbs of the domain.

Protocols, values, and the rules that all stores share. Callers pass durations, never instants: the store's clock
decides. Each sentence of a contract here is a test of `holdfast.testing.conformance`, which every backend passes.
"""
