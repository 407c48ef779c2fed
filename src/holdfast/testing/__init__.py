"""Test support: a manual clock, opened stores, a reference model and the conformance suite that every store passes."""
