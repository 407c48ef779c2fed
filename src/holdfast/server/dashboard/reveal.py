"""The arguments, headers and result of a job as they may be shown: without what its names suggest to be secret."""

from __future__ import annotations

import msgspec

from holdfast.server.dashboard.formats import pretty
from holdfast.server.redaction import redacted, redacted_data
from holdfast.server.state import ServerSettings
from holdfast.store.values import JobDetails


class Revealed(msgspec.Struct, frozen=True):
    """What may be shown, as indented JSON; None: there is none."""

    arguments: str
    headers: str | None
    result: str | None


def revealed(settings: ServerSettings, details: JobDetails) -> Revealed:
    """Return what may be shown of a job."""
    task = details.job.task
    return Revealed(
        pretty(redacted(settings, task, details.payload)),
        pretty(redacted_data(settings, task, details.headers)) if details.headers else None,
        None if details.result is None else pretty(redacted(settings, task, details.result)),
    )
