"""Frozen data and pure rules: no I/O, no clock, no randomness."""
