"""Benchmarks: Holdfast beside hand-written loops, in one run on one machine.

`python -m benchmarks` runs all of it. A figure means little alone, so each is given with that of a loop in `raw/`,
which uses the driver only and works as durably. Every scenario counts afterwards what the store holds, and fails when a
job was lost or done twice.
"""
