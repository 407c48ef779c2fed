"""Ends of a run without a verdict."""

from __future__ import annotations

from holdfast.errors import HoldfastError


class RunFailed(HoldfastError):  # noqa: N818 - reads as the sentence it states
    """A run could not be done as planned, so that nothing can be said of what it tortured."""


class FaultFailed(RunFailed):
    """The nemesis could not do what it was to do."""
