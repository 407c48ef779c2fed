"""The app of a stream run, with a store wrapper that records the history."""

from __future__ import annotations

import os
from typing import Final, cast

from holdfast.app.app import App
from holdfast.store.backend import Backend
from holdfast.torture.recorder import recorder
from holdfast.torture.streams.recording_backend import RecordingStreamBackend
from holdfast.torture.work.app import URL

app: Final = App(os.environ.get(URL, "sqlite://"))
app.backend = cast("Backend", RecordingStreamBackend(app.backend, recorder))
