"""The arguments, headers and result of a job as they may be shown: without what its names suggest to be secret."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from holdfast.server.dashboard.formats import cut, pretty
from holdfast.server.redaction import redacted, redacted_data
from holdfast.server.state import ServerSettings
from holdfast.store.values import JobDetails

MOST: Final = 16_000
"""Bytes of HTML: a page shows the arguments, the headers and the result of a job, or an event."""
_MOST_HEADERS: Final = 3_000


class Revealed(msgspec.Struct, frozen=True):
    """What may be shown, as indented JSON; None: there is none. `is_cut`: some of it is longer than what is shown."""

    arguments: str
    headers: str | None
    result: str | None
    is_cut: bool


def revealed(settings: ServerSettings, details: JobDetails) -> Revealed:
    """Return what may be shown of a job."""
    task = details.job.task
    arguments, is_cut = shown(redacted(settings, task, details.payload))
    headers, result = None, None
    if details.headers:
        headers, is_cut_there = shown(redacted_data(settings, task, details.headers), _MOST_HEADERS)
        is_cut |= is_cut_there
    if details.result is not None:
        result, is_cut_there = shown(redacted(settings, task, details.result))
        is_cut |= is_cut_there
    return Revealed(arguments, headers, result, is_cut)


def shown(value: Any, most: int = MOST) -> tuple[str, bool]:
    """Return data as indented JSON, and whether it is longer than that. Cut it only after it was redacted."""
    whole = pretty(value)
    text = cut(whole, most)
    return text, text != whole
