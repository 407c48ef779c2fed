"""The app under torture: one per process of a run, with a store wrapper that records the history.

The conductor passes the store and the outside server in the environment, which other users cannot read; job children
inherit it.
"""

from __future__ import annotations

import os
from datetime import timedelta
from functools import cache
from typing import Final

from holdfast.app.app import App
from holdfast.store.values import Retention
from holdfast.torture.plan import LEASE
from holdfast.torture.recorder import recorder
from holdfast.torture.recording_backend import RecordingBackend
from holdfast.torture.target import Target, target_of

URL: Final = "HOLDFAST_TORTURE_URL"
EVENTS: Final = "HOLDFAST_EVENTS_URL"
"""Where an app finds Kafka; empty for a run whose events are in the store."""
OUTSIDE: Final = "HOLDFAST_TORTURE_OUTSIDE"
AGAIN: Final = 0.2
"""Seconds until a failed attempt is retried."""
LEASE_VARIABLE: Final = "HOLDFAST_TORTURE_LEASE"
lease: Final = float(os.environ.get(LEASE_VARIABLE, str(LEASE)))

_FOREVER: Final = timedelta(days=36_500)
EVERYTHING: Final = Retention(completed=_FOREVER, failed=_FOREVER, cancelled=_FOREVER, counts=_FOREVER)
"""Nothing is pruned during a run: the checker reads every job at the end."""

app: Final = App(os.environ.get(URL, "sqlite://"), retention=EVERYTHING)
app.backend, recording = RecordingBackend.around(app.backend, recorder)


@cache
def target() -> Target:
    """Return the target of this run, as its programs reach it."""
    return target_of(os.environ[URL])
