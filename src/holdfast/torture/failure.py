"""Errors that end a run without a verdict."""

from __future__ import annotations

from holdfast.errors import HoldfastError


class RunFailed(HoldfastError):  # noqa: N818 - reads as the sentence it states
    """A run could not be carried out as planned, so that it has no verdict."""


class FaultFailed(RunFailed):
    """The nemesis could not inject a fault."""
