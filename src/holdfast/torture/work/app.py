"""The app under torture: one per process of a run, with a store wrapper that records the history.

The conductor passes the store and the outside server in the environment, which other users cannot read; job children
inherit it.
"""

from __future__ import annotations

import os
from datetime import timedelta
from typing import Final
from urllib.parse import parse_qs, urlsplit

from holdfast.app.app import App
from holdfast.store.values import Retention
from holdfast.torture.plan import LEASE
from holdfast.torture.recorder import recorder
from holdfast.torture.recording_backend import RecordingBackend
from holdfast.torture.target.statements import TargetStatements, postgres_statements, sqlite_statements

URL: Final = "HOLDFAST_TORTURE_URL"
OUTSIDE: Final = "HOLDFAST_TORTURE_OUTSIDE"
AGAIN: Final = 0.2
"""Seconds until a failed attempt is retried."""
LEASE_VARIABLE: Final = "HOLDFAST_TORTURE_LEASE"
lease: Final = float(os.environ.get(LEASE_VARIABLE, str(LEASE)))

_FOR_EVER: Final = timedelta(days=36_500)
EVERYTHING: Final = Retention(completed=_FOR_EVER, failed=_FOR_EVER, cancelled=_FOR_EVER, counts=_FOR_EVER)
"""A worker prunes the whole store. In a store with other data a run must find nothing old enough."""

app: Final = App(os.environ.get(URL, "sqlite://"), retention=EVERYTHING)
app.backend, recording = RecordingBackend.around(app.backend, recorder)


def dialect() -> str:
    """Return the kind of store: sqlite or postgresql."""
    scheme = urlsplit(app.backend.url).scheme
    return "postgresql" if scheme == "postgres" else scheme


def statements() -> TargetStatements:
    """Return the statements for the tables of the run."""
    if dialect() == "sqlite":
        return sqlite_statements()
    return postgres_statements(parse_qs(urlsplit(app.backend.url).query).get("schema", ["holdfast"])[0])
