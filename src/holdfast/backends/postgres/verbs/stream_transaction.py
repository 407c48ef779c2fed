"""The end of a consumer's transaction in one statement, which commits its position."""

from __future__ import annotations

import psycopg

from holdfast.backends.sql.steps import Ask
from holdfast.backends.sql.streams.consumers import grant_names, position_step
from holdfast.model.allocation import Grant
from holdfast.store.stream_values import Commit


def commit_or_fail(grant: Grant, step: Commit) -> Ask:
    """Return the statement that advances only the position, and fails if the grant is stale (`is_stale`).

    So a COMMIT can be sent together with it, before its result is known.
    """
    return Ask("commit_position_or_fail", {**grant_names(grant), **position_step(step)})


def is_stale(error: psycopg.Error) -> bool:
    """Return whether the statement of `commit_or_fail` failed because the grant is stale."""
    return isinstance(error, psycopg.errors.InvalidTextRepresentation) and "holdfast: stale grant" in str(error)
