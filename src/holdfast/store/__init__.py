"""The port: what Holdfast asks of a store, in verbs of the domain.

Protocols and values only. Durations go in, never instants: the store's clock decides. Each sentence of a docstring
here is repeated by a test of `holdfast.testing.conformance`, which every backend passes.
"""
